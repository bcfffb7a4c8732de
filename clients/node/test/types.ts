// Programs that must compile, and, after @ts-expect-error, lines that must not. This is not run.
import { Spanner } from '@google-cloud/spanner';
import {
  addFence, addRecord, AgentError, BusyError, Held, lead, leader, lock, LostError, once, RefusedError, ReleaseUnknownError,
  RequestError, runFence, semaphore, SpindleError, StopError, TimeoutError,
} from 'spindle-agent';
import type { AgentEvent, Fence, Leader, Run } from 'spindle-agent';

export async function locks(signal: AbortSignal): Promise<void> {
  const held: Held = await lock('a', { wait: '30s', lease: 10_000, signal, label: 'l', value: 'v', stall: '5s', eof: 'release' });
  const fence: readonly Fence[] = held.fence;
  const left: number = held.left() + held.token + fence.length;
  await held.release();
  const text: string = await lock(['a', 'b'] as const, {}, async (both) => `${both.names.join()} ${left}`);
  const n: number = await lock('a', (one) => one.left());
  {
    await using scoped = await lock('a');
    scoped.check();
  }
  await semaphore('s', { slots: 3 }, (slot) => slot.still());
  console.log(text, n, AbortSignal.abort().reason);
  // @ts-expect-error: a semaphore has slots
  await semaphore('s', {});
  // @ts-expect-error: there is no such option
  await lock('a', { priority: 3 });
  // @ts-expect-error: only the library makes one
  new Held();
}

export async function elections(signal: AbortSignal): Promise<Leader | null> {
  const onEvent = (event: AgentEvent) => console.log(event.event, event['leader']);
  for await (const term of lead('e', { priority: 3, handover: true, signal, onEvent })) {
    term.signal.addEventListener('abort', () => console.log((term.signal.reason as LostError).reason));
    term.stopSignal.addEventListener('abort', () => console.log((term.stopSignal.reason as StopError).reason));
    await term.stepDown();
  }
  return leader('e', { socket: '/s' });
}

export async function runs(): Promise<void> {
  const ran: boolean = await once('o', { every: '24h', offset: '1h' }, (run) => run.key.length);
  const run: Run | null = await once('o', { key: `${ran}` });
  if (!run) return;
  console.log(run.record);
  await run.done();
  // @ts-expect-error: one of the two
  await once('o', { key: 'k', every: '24h' });
  // @ts-expect-error: a lock has no key
  await (await lock('a')).done();
}

export async function writes(held: Held, run: Run): Promise<void> {
  const database = new Spanner({ projectId: 'p' }).instance('i').database('d');
  await database.runTransactionAsync(async (transaction) => {
    addFence(transaction, held);
    addRecord(transaction, run);
    await runFence(transaction, held, { dialect: 'postgresql' });
    await transaction.commit();
  });
}

export function errors(error: unknown): string {
  if (error instanceof BusyError || error instanceof TimeoutError || error instanceof AgentError) return error.code;
  if (error instanceof RequestError) return `${error.code} ${error.status}`;
  if (error instanceof LostError || error instanceof StopError) return error.reason;
  if (error instanceof RefusedError || error instanceof ReleaseUnknownError) return error.message;
  return error instanceof SpindleError ? error.code : 'unknown';
}
