// Fenced writes, with Google's client for Spanner.
import assert from 'node:assert/strict';
import { Spanner } from '@google-cloud/spanner';
import { after, before, describe, it } from 'node:test';
import { addFence, addRecord, lock, once, runFence } from '../src/index.js';
import { newName, startAgent } from './support/agent.js';
import { aborted } from './support/aborted.js';

const [notFound, failedPrecondition] = [5, 9];

describe('fence', { concurrency: true, timeout: 50_000 }, () => {
  let agent;
  let spanner;
  let database;
  before(async () => {
    agent = await startAgent();
    const [, project, , instance, , data] = process.env.SPINDLE_DB.split('/');
    spanner = new Spanner({ projectId: project });
    database = spanner.instance(instance).database(data);
    const create = async () => {
      const [operation] = await database.updateSchema('CREATE TABLE work (id STRING(MAX) NOT NULL, token INT64) PRIMARY KEY (id)');
      await operation.promise();
    };
    // The emulator refuses it while a transaction is open, such as one of an agent that was killed.
    for (let done = false; !done; ) {
      done = await create().then(() => true, (error) => (error.code === failedPrecondition ? false : Promise.reject(error)));
      if (!done) await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
  after(async () => {
    await database.close();
    spanner.close();
    await agent.end();
  });

  /** Writes one row in a transaction that the fence is put into. */
  const write = (id, held, fence) =>
    database.runTransactionAsync(async (transaction) => {
      try {
        await fence(transaction, held);
        transaction.insert('work', { id, token: held.token });
        await transaction.commit();
      } catch (error) {
        await transaction.rollback().catch(() => {}); // it may not have begun
        throw error;
      }
    });

  const written = async (id) => {
    const [rows] = await database.run({ sql: 'SELECT COUNT(*) n FROM work WHERE id = @id', params: { id }, json: true });
    return rows[0].n === 1;
  };

  /** Returns a lock that was lost to another, which holds it now. */
  const lostLock = async (name) => {
    const stopped = await startAgent();
    const held = await lock(name, { socket: stopped.socket, lease: '500ms' });
    await stopped.end();
    await aborted(held.signal);
    const next = await lock(name, { socket: agent.socket });
    return { held, next };
  };

  for (const [how, fence, refused] of [
    ['a mutation', addFence, { code: notFound }],
    ['a statement', runFence, { name: 'LostError' }],
  ]) {
    it(`with ${how}, a write takes effect while the lock is held`, async () => {
      const name = newName();
      await lock([name, newName()], { socket: agent.socket }, (held) => write(name, held, fence));
      assert.ok(await written(name));
    });

    it(`with ${how}, a write has no effect after the lock was lost, and the next holder's has`, async () => {
      const name = newName();
      const { held, next } = await lostLock(name);
      await assert.rejects(write(name, held, fence), refused);
      assert.ok(!(await written(name)));
      await write(name, next, fence);
      assert.ok(await written(name));
      await next.release();
    });

    it(`with ${how}, a write has no effect after the release`, async () => {
      const name = newName();
      const held = await lock(name, { socket: agent.socket });
      await held.release();
      await assert.rejects(write(name, held, fence), refused);
      assert.ok(!(await written(name)));
    });
  }

  it('the record takes effect with the work\'s own writes, even if the program gets no further', async () => {
    const name = newName();
    const run = await once(name, { key: 'v1', socket: agent.socket });
    await write(name, run, addRecord);
    assert.ok(await written(name));
    await run.release();
    assert.equal(await once(name, { key: 'v1', socket: agent.socket }), null);
  });

  it('done() may follow the record', async () => {
    const name = newName();
    assert.equal(await once(name, { key: 'v1', socket: agent.socket }, (run) => write(name, run, addRecord)), true);
    assert.equal(await once(name, { key: 'v1', socket: agent.socket }), null);
  });
});
