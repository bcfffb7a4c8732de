// The fence in a transaction of @google-cloud/spanner.
import { LostError } from './errors.js';

const methods = { insert: 'insert', update: 'update', insertOrUpdate: 'upsert' };

/** Adds mutations that fail the commit unless the lock is held. */
export function addFence(transaction, held) {
  held.fence.forEach((fence) => buffer(transaction, fence.mutation));
}

/** Adds mutations that record a run as done, and fail the commit unless it is held. */
export function addRecord(transaction, run) {
  run.record.forEach((mutation) => buffer(transaction, mutation));
}

/** Runs the statements that find out whether the lock is held. */
export async function runFence(transaction, held, { dialect = 'googlesql' } = {}) {
  for (const fence of held.fence) {
    const [rows] = await transaction.runUpdate({ sql: fence[dialect], params: { p1: fence.p1 } });
    if (rows !== fence.rows) throw new LostError(held.names, 'superseded', 'the fence found that it is held under another token, or not at all');
  }
}

function buffer(transaction, mutation) {
  for (const [kind, { table, columns, values }] of Object.entries(mutation)) {
    const rows = values.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]])));
    transaction[methods[kind]](table, rows);
  }
}
