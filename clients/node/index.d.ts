/// <reference lib="esnext.disposable" />

/**
 * Locks on Cloud Spanner, held by a spindle agent.
 *
 * A program may act only while `held.still()` is true. It must check that before each effect, and fence what it writes to
 * Spanner with `held.fence`.
 */

/** Milliseconds, or text such as `'10s'`, `'500ms'` or `'1m30s'`. */
export type Duration = number | string;

/** The options of all functions. */
export interface AgentOptions {
  /** The agent's socket. Default: the environment variable SPINDLE_AGENT, or /run/spindle/agent.sock. */
  socket?: string;
}

/** The options of all kinds of locks. */
export interface HoldOptions extends AgentOptions {
  /** How long the lock stays with this program if its agent fails. Default: 10 s. */
  lease?: Duration;
  /**
   * How long to wait for the lock, in this process and at the agent, before a TimeoutError is thrown. With 0, a BusyError is
   * thrown immediately if another holder has the lock, or asks for it at the same time. Default: forever.
   */
  wait?: Duration;
  /** Aborts the wait, which rejects with the signal's reason. It has no effect on a lock that is held. */
  signal?: AbortSignal;
  /** This program loses the lock if its event loop reads nothing for this long. Default: it may be blocked. */
  stall?: Duration;
  /**
   * `'release'`: the end of the connection releases the lock, even if this process still runs. Use it on systems that do not
   * report the end of a process: Linux before 6.5, and macOS.
   */
  eof?: 'release';
  /** The name of this program in `spindle ls`. Default: its command. */
  label?: string;
  /** A text that other programs see beside the holder. */
  value?: string;
  /** How long the agent may be silent while this program waits, before an AgentError. It sends a line every 5 s. Default: 15 s. */
  silence?: Duration;
  /** Called with each line that the agent sends, for logs. It must not throw. */
  onEvent?: (event: AgentEvent) => void;
}

/** The options of elections. */
export interface ElectionOptions extends HoldOptions {
  /** From 0 to 9, the highest. Candidates yield to candidates of higher priority. Default: 9. */
  priority?: number;
  /** Announces the end of a term to the next leader first, which shortens the time without a leader. */
  handover?: boolean;
}

/** The options of semaphores. */
export interface SemaphoreOptions extends HoldOptions {
  /** How many holders the semaphore may have. All programs must pass the same number. */
  slots: number;
}

/** The options of work that is done once: `every`, or `key`. */
export type OnceOptions = HoldOptions &
  (
    | {
        /** The period of a schedule: the work is done once for each of its times. */
        every: Duration;
        /** How long after each full period, in UTC, a run is due. Default: 0, or 7.5 minutes if the period is half an hour or more. */
        offset?: Duration;
        key?: undefined;
      }
    | {
        /** The work is done once for this key. Keys must increase: once a key is done, smaller keys are refused. */
        key: string;
        every?: undefined;
        offset?: undefined;
      }
  );

/** A line from the agent. It may have an event or fields that this version does not know. */
export interface AgentEvent {
  event: 'hello' | 'waiting' | 'leader' | 'held' | 'until' | 'jeopardy' | 'stop' | 'lost' | 'timeout' | 'refused' | 'done' | (string & {});
  [field: string]: unknown;
}

/** A change of rows, in the form of Spanner's REST API. */
export type Mutation = {
  [kind in 'insert' | 'update' | 'insertOrUpdate']?: { table: string; columns: string[]; values: (string | null)[][] };
};

/**
 * Makes a serializable transaction take effect only if one lock is still held under its token. Add the mutation to the
 * transaction. Or run the statement with the parameter p1, and roll back unless it changes exactly `rows` rows.
 */
export interface Fence {
  googlesql: string;
  postgresql: string;
  p1: string;
  rows: number;
  mutation: Mutation;
}

/**
 * A lock that this program holds. It belongs to this process and this thread, and can't be sent to others. Call `release()`
 * when the work has returned, even if the lock was lost.
 */
export class Held {
  private constructor();
  /** The names of the locks. */
  readonly names: readonly string[];
  /** The token of this term. Each term of a lock has a larger token than all earlier terms. */
  readonly token: number;
  /** A fence for each lock. */
  readonly fence: readonly Fence[];
  /**
   * Aborts only when the lock is lost, with a LostError as its reason. It may abort later than `still()` becomes false. Call
   * `release()` afterwards, too.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts when the agent asks for the lock, with a StopError as its reason: on behalf of an operator or the next leader, or
   * because the agent is about to end. The lock is still held. Complete the work, then call `release()`.
   */
  readonly stopSignal: AbortSignal;
  /**
   * Reports whether this program may act now, by every clock that it can read. It sends no request. After `release()`,
   * `done()` or a loss, it is false and remains false. It is also false right after this process was stopped, or its event
   * loop was blocked, for longer than the lease. If the agent extended the lock meanwhile, it becomes true again when the
   * event loop has read that.
   */
  still(): boolean;
  /** Throws a LostError unless `still()`. */
  check(): void;
  /** Returns for how many milliseconds this program may act, 0 unless `still()`. */
  left(): number;
  /**
   * Releases the lock. Call it when the work has returned: from then on, `still()` is false. Resolves when another program can
   * get the lock. Rejects with a LostError if the lock had already been lost, or with a ReleaseUnknownError if `still()` was true
   * and no agent says what became of it. If the agent is restarting, it waits for the agent for as long as the lock may be held. A second call returns the same promise.
   */
  release(): Promise<void>;
  /**
   * Asks the agent to end this term: `stopSignal` aborts, either immediately, or with `handover`, when the next leader is
   * ready. Then complete the work, and call `release()`.
   */
  stepDown(): Promise<void>;
  /** Calls `release()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A run of work that is done once. */
export interface Run extends Held {
  /** The key of this run. For a schedule, it is the scheduled time. */
  readonly key: string;
  /**
   * Mutations that record the key as done, and fail if the run is not held. In one transaction with the work's own writes,
   * they make these writes take effect exactly once: see `addRecord`.
   */
  readonly record: readonly Mutation[];
  /**
   * Records the key as done and releases the lock, in one commit. Rejects as `release()` does: in that case, the key may not
   * be recorded, and another program may run it again. After `release()` instead, the next program runs the key.
   */
  done(): Promise<void>;
}

/** Acquires a lock. With several names, acquires all of the locks or none. Tasks of one process take turns. */
export function lock(names: string | readonly string[], options?: HoldOptions): Promise<Held>;
/**
 * Runs work while it holds a lock, and resolves with the result. The lock is released when the work has returned or thrown.
 * Rejects with the error of the work. If the work threw none, rejects with the error of the release, such as a LostError.
 */
export function lock<T>(names: string | readonly string[], options: HoldOptions, work: (held: Held) => T | Promise<T>): Promise<T>;
export function lock<T>(names: string | readonly string[], work: (held: Held) => T | Promise<T>): Promise<T>;

/** Acquires one of the slots of a semaphore. One process may have several. */
export function semaphore(name: string, options: SemaphoreOptions): Promise<Held>;
/** Runs work while it holds a slot, as `lock` does. */
export function semaphore<T>(name: string, options: SemaphoreOptions, work: (held: Held) => T | Promise<T>): Promise<T>;

/** Acquires a run of work that is done once, or resolves with null if the work is already done. */
export function once(name: string, options: OnceOptions): Promise<Run | null>;
/**
 * Runs work once. Resolves with true if it ran here, and with false if it was already done. When the work has returned, its
 * key is recorded as done. If the work throws, the next program runs the key again, and the promise rejects with the error.
 */
export function once(name: string, options: OnceOptions, work: (run: Run) => unknown): Promise<boolean>;

/**
 * Takes part in an election: each step of `for await` is one term in which this program leads. The term ends with the step,
 * even if `break` or an error ends it. If the agent can't be reached, it tries again. The iteration ends when `signal`
 * aborts, but not before the current term has ended.
 */
export function lead(name: string, options?: ElectionOptions): AsyncGenerator<Held, void, undefined>;

/** The leader of an election. */
export interface Leader {
  /** The leader's id: its host, process, label and a proof. */
  id: string;
  /** The leader's option `value`. */
  value?: string;
  token: number;
  /** Whether the leader is about to release the lock. */
  leaving?: boolean;
}

/** Returns the leader of an election, which may be on another machine, or null if there is none. */
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

/** Adds the record that a run is done to a transaction, which is then fenced as with `addFence`. Call `done()` after the commit. */
export function addRecord(transaction: MutationTarget, run: Run): void;

/**
 * Runs the fence's statements in a transaction of @google-cloud/spanner. Throws a LostError if the lock is not held under its
 * token: let that error leave the function of `runTransactionAsync`, or roll back. Default dialect: googlesql.
 */
export function runFence(transaction: StatementTarget, held: Held, options?: { dialect?: 'googlesql' | 'postgresql' }): Promise<void>;

/** The base class of all errors of this module. The message says what to do, and the code is for programs. */
export class SpindleError extends Error {
  readonly code: string;
}

/** `wait` was 0, and another holder has the lock. Try again later, or allow some time to wait. */
export class BusyError extends SpindleError {
  readonly code: 'busy';
}

/** The lock was not acquired within `wait`. Try again, or wait longer. */
export class TimeoutError extends SpindleError {
  readonly code: 'timeout';
}

/**
 * The agent did not acquire the lock: `passed` (a larger key is done), `stopping` (the agent ends), `stalled` (this
 * process did not read what the agent sent), `unavailable` (the database can't be reached), `too-many` (locks of this agent),
 * `refused`, or another code.
 */
export class RefusedError extends SpindleError {}

/** The lock is no longer held. Stop the work, and acquire the lock again. */
export class LostError extends SpindleError {
  readonly code: 'lost';
  /** `expired`, `superseded`, `stalled`, `closed`, `exited`; `agent`: the agent has ended; `released`: by this program. */
  readonly reason: string;
}

/** The agent asks for the lock: the reason of `stopSignal`. */
export class StopError extends SpindleError {
  readonly code: 'stop';
  /** `stepdown`, `handover`, `agent-stops`, or another. */
  readonly reason: string;
}

/** The agent can't be reached, does not answer, or has ended while this program waited. Start it, or try again. */
export class AgentError extends SpindleError {
  readonly code: 'unreachable';
}

/** An argument is invalid or not allowed: correct the program, or the agent's options. */
export class RequestError extends SpindleError {
  /** The agent's status: 400 for an invalid argument, 403 for one that is not allowed. */
  readonly status: number;
}

/**
 * It is not known whether the lock was released, and for a run, whether it is recorded as done. The lock expires by itself, at
 * the latest after its lease.
 */
export class ReleaseUnknownError extends SpindleError {
  readonly code: 'release-unknown';
}
