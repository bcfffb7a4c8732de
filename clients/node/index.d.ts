/// <reference lib="esnext.disposable" />

/**
 * Locks on Cloud Spanner, held by a spindle agent.
 *
 * A program may act only while `held.still()` is true, and checks that before each effect. What it writes to Spanner it
 * fences, with `held.fence`.
 */

/** Milliseconds, or text such as `'10s'`, `'500ms'` or `'1m30s'`. */
export type Duration = number | string;

/** What all functions take. */
export interface AgentOptions {
  /** The agent's socket. Default: the environment variable SPINDLE_AGENT, or /run/spindle/agent.sock. */
  socket?: string;
}

/** What all kinds of locks take. */
export interface HoldOptions extends AgentOptions {
  /** How long the lock stays with this program if its agent fails. Default: 10 s. */
  lease?: Duration;
  /**
   * How long to wait for the lock, in this process and at the agent. Then a TimeoutError is thrown; with 0, a BusyError at
   * once if another has the lock, or wants it at the same moment. Default: forever.
   */
  wait?: Duration;
  /** Ends the wait, with the signal's reason. It does not end the holding of the lock. */
  signal?: AbortSignal;
  /** This program loses the lock if its event loop has read nothing for so long. Default: it may be blocked. */
  stall?: Duration;
  /**
   * `'release'`: the end of the connection releases the lock, even if this process still runs. For kernels that can't show
   * the end of a process: Linux before 6.5, and macOS.
   */
  eof?: 'release';
  /** What this program is called in `spindle ls`. Default: its command. */
  label?: string;
  /** What others see beside the holder. */
  value?: string;
  /** How long the agent may be silent while this program waits, before an AgentError. It sends a line every 5 s. Default: 15 s. */
  silence?: Duration;
  /** Is called with each line of the agent, for logs. It must not throw. */
  onEvent?: (event: AgentEvent) => void;
}

/** What elections take. */
export interface ElectionOptions extends HoldOptions {
  /** From 0 to 9: the candidate with the highest priority leads. Default: 9. */
  priority?: number;
  /** The next leader is ready before this one releases the lock. */
  handover?: boolean;
}

/** What semaphores take. */
export interface SemaphoreOptions extends HoldOptions {
  /** How many programs may hold the semaphore. All must give the same number. */
  slots: number;
}

/** What work that is done once takes: `every`, or `key`. */
export type OnceOptions = HoldOptions &
  (
    | {
        /** The period of a schedule: the work is done once for each of its times. */
        every: Duration;
        /** How long after the full periods, in UTC, those of the schedule begin. Default: 0, or for half an hour or more, 7.5 minutes. */
        offset?: Duration;
        key?: undefined;
      }
    | {
        /** The work is done once for this key. Keys only grow: once one is done, smaller ones are not run any more. */
        key: string;
        every?: undefined;
        offset?: undefined;
      }
  );

/** A line of the agent. There may be events and fields that this version does not know. */
export interface AgentEvent {
  event: 'hello' | 'waiting' | 'leader' | 'held' | 'until' | 'jeopardy' | 'stop' | 'lost' | 'timeout' | 'refused' | 'done' | (string & {});
  [field: string]: unknown;
}

/** A change of rows, in the form of Spanner's REST API. */
export type Mutation = {
  [kind in 'insert' | 'update' | 'insertOrUpdate']?: { table: string; columns: string[]; values: (string | null)[][] };
};

/**
 * Lets a write take effect only while one lock is held under one token. The transaction must be serializable. It contains
 * the mutation, or it runs the statement with the parameter p1 and rolls back unless that changed `rows` rows.
 */
export interface Fence {
  googlesql: string;
  postgresql: string;
  p1: string;
  rows: number;
  mutation: Mutation;
}

/**
 * A lock that this program holds. It belongs to this process and this thread: it can't be sent to others. Call `release()`
 * once the work has returned, also if the lock was lost.
 */
export class Held {
  private constructor();
  /** The lock's names. */
  readonly names: readonly string[];
  /** Larger for each next holder. */
  readonly token: number;
  /** A fence for each lock. */
  readonly fence: readonly Fence[];
  /**
   * Aborts when the lock is lost, with a LostError as its reason, and never otherwise. It may abort late: `still()` is false
   * before that. Call `release()` even so.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts when somebody asks for the lock, with a StopError as its reason: an operator, the next leader, or the agent before
   * it ends. The lock is still held. Complete the work, then call `release()`.
   */
  readonly stopSignal: AbortSignal;
  /**
   * Reports whether this program may act now, by every clock that it can read. It asks nobody. After `release()`, `done()` or
   * a loss it is false, and remains false. It is also false right after this process was stopped, or its event loop was
   * blocked, for longer than the lease. If the agent has extended the lock meanwhile, it is true again when the event loop
   * has read that.
   */
  still(): boolean;
  /** Throws a LostError unless `still()`. */
  check(): void;
  /** Returns for how many milliseconds this program may act, 0 unless `still()`. */
  left(): number;
  /**
   * Releases the lock, once the work has returned: `still()` is false from now on. Resolves when the next program may have the
   * lock. Rejects with a LostError if the lock was lost before, or with a ReleaseUnknownError. If the agent is being
   * started again, it waits for that as long as the lock may be held. A second call returns the same promise.
   */
  release(): Promise<void>;
  /**
   * Asks for the lock oneself: `stopSignal` aborts, at once, or with `handover` when the next leader is ready. Then
   * complete the work, and call `release()`.
   */
  stepDown(): Promise<void>;
  /** Calls `release()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A run of work that is done once. */
export interface Run extends Held {
  /** The key that is done by this run: of a schedule, the time. */
  readonly key: string;
  /**
   * Records the key as done, and fences. In the transaction of the work's own writes, these take effect exactly once: see
   * `addRecord`.
   */
  readonly record: readonly Mutation[];
  /**
   * Records the key as done and releases the lock, in one commit. Rejects as `release()` does; then the key may not be
   * recorded, and another program may run it again. Without it, `release()` leaves the key to the next program.
   */
  done(): Promise<void>;
}

/** Acquires a lock, or with several names all of the locks or none. Tasks of one process take turns. */
export function lock(names: string | readonly string[], options?: HoldOptions): Promise<Held>;
/**
 * Does work while it holds a lock, and resolves with the work's result. When the work has returned or thrown, the lock is
 * released. If the release fails, such as with a LostError, that is thrown, unless the work threw.
 */
export function lock<T>(names: string | readonly string[], options: HoldOptions, work: (held: Held) => T | Promise<T>): Promise<T>;
export function lock<T>(names: string | readonly string[], work: (held: Held) => T | Promise<T>): Promise<T>;

/** Acquires one of the slots of a semaphore. One process may have several. */
export function semaphore(name: string, options: SemaphoreOptions): Promise<Held>;
/** Does work while it holds a slot, as `lock` does. */
export function semaphore<T>(name: string, options: SemaphoreOptions, work: (held: Held) => T | Promise<T>): Promise<T>;

/** Acquires a run of work that is done once, or resolves with null if it is done already. */
export function once(name: string, options: OnceOptions): Promise<Run | null>;
/**
 * Does work once, and resolves with whether it ran here: false if it was done already. When the work has returned, its key
 * is done. If the work throws, the key is left to the next program, and the error is thrown.
 */
export function once(name: string, options: OnceOptions, work: (run: Run) => unknown): Promise<boolean>;

/**
 * Leads, again and again: each step of `for await` is one term. The end of the step, also by `break` or an error, ends the
 * term. While the agent can't be reached, it tries again. The iteration ends when `signal` aborts; a term that has begun
 * is not interrupted.
 */
export function lead(name: string, options?: ElectionOptions): AsyncGenerator<Held, void, undefined>;

/** Who leads. */
export interface Leader {
  /** The holder's id: its host, process, label and a proof. */
  id: string;
  /** What it says about itself, in the option `value`. */
  value?: string;
  token: number;
  /** It is about to release the lock. */
  leaving?: boolean;
}

/** Asks the agent who leads, of all programs. Resolves with null if nobody does. */
export function leader(name: string, options?: AgentOptions): Promise<Leader | null>;

/** The part of a transaction of @google-cloud/spanner that takes mutations. */
export interface MutationTarget {
  insert(table: string, rows: object): unknown;
  update(table: string, rows: object): unknown;
  upsert(table: string, rows: object): unknown;
}

/** The part of a transaction of @google-cloud/spanner that takes statements. */
export interface StatementTarget {
  runUpdate(query: { sql: string; params: Record<string, string> }): Promise<[number, ...unknown[]]>;
}

/**
 * Adds the fence to a transaction of @google-cloud/spanner, as mutations. If the lock is not held under its token, the commit
 * fails with code 5, NOT_FOUND, and writes nothing.
 */
export function addFence(transaction: MutationTarget, held: Held): void;

/** Adds to a transaction that a run is done. It is fenced as with `addFence`. Call `done()` after the commit. */
export function addRecord(transaction: MutationTarget, run: Run): void;

/**
 * Runs the fence's statements in a transaction of @google-cloud/spanner. Throws a LostError if the lock is not held under its
 * token: let that error leave the function of `runTransactionAsync`, or roll back. Default dialect: googlesql.
 */
export function runFence(transaction: StatementTarget, held: Held, options?: { dialect?: 'googlesql' | 'postgresql' }): Promise<void>;

/** Every error of this module. Its message says what to do; its code is for programs. */
export class SpindleError extends Error {
  readonly code: string;
}

/** `wait` was 0, and another has the lock. Try again later, or wait. */
export class BusyError extends SpindleError {
  readonly code: 'busy';
}

/** The time in `wait` is over. Try again, or wait longer. */
export class TimeoutError extends SpindleError {
  readonly code: 'timeout';
}

/**
 * The agent did not acquire the lock: `passed` (a larger key is done), `stopping` (the agent ends), `unavailable` (the
 * database can't be reached), `too-many` (locks of this agent), `refused`, or another code.
 */
export class RefusedError extends SpindleError {}

/** The lock is not held any more. Stop the work, and acquire the lock again. */
export class LostError extends SpindleError {
  readonly code: 'lost';
  /** `expired`, `superseded`, `stalled`, `closed`, `exited`; `agent`: the agent has ended; `released`: by this program. */
  readonly reason: string;
}

/** Somebody asks for the lock: the reason of `stopSignal`. */
export class StopError extends SpindleError {
  readonly code: 'stop';
  /** `stepdown`, `handover`, `agent-stops`, or another. */
  readonly reason: string;
}

/** The agent can't be reached, does not answer, or has ended while this program waited. Start it, or try again. */
export class AgentError extends SpindleError {
  readonly code: 'unreachable';
}

/** An argument is wrong, or not allowed: mend the program, or the agent's options. */
export class RequestError extends SpindleError {
  /** The agent's status: 400 for a wrong argument, 403 for one that is not allowed. */
  readonly status: number;
}

/**
 * It is not known whether the lock was released, and for a run, whether it is recorded as done. The lock expires by itself, at
 * the latest after its lease.
 */
export class ReleaseUnknownError extends SpindleError {
  readonly code: 'release-unknown';
}
