// Runs the tests, or the given files, against a real agent and an emulator of its own:
//
//     npm test [-- test/lock.test.js]
//
// SPINDLE names the command; without it, it is built from this repository, with Go. SPINDLE_EMULATOR names emulator_main;
// without it, it is looked for in PATH and beside gcloud.
import { execFileSync, spawn } from 'node:child_process';
import { accessSync, constants, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'spindle-node-'));
const started = [];

process.on('exit', () => {
  started.forEach((child) => child.kill('SIGKILL'));
  rmSync(folder, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`the tests did not run: ${error.message}`);
  process.exitCode = 1;
}
process.exit();

async function main() {
  const spindle = process.env.SPINDLE || build();
  const env = {
    ...process.env,
    SPINDLE: spindle,
    SPANNER_EMULATOR_HOST: await startEmulator(),
    SPINDLE_DB: 'projects/proj/instances/inst/databases/data',
    SPINDLE_TEST_FOLDER: folder,
    GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS: 'false', // emulators do not say that a session is multiplexed
    METADATA_SERVER_DETECTION: 'none', // the client for Spanner would look for Google's machines
  };
  delete env.SPINDLE_AGENT;
  execFileSync(spindle, ['init', '--create'], { env, stdio: ['ignore', 'ignore', 'inherit'] });
  const files = process.argv.slice(2);
  return end(start(process.execPath, ['--test', ...(files.length ? files : all())], { env, stdio: 'inherit' }));
}

function all() {
  return readdirSync(here).filter((name) => name.endsWith('.test.js')).map((name) => join(here, name));
}

function build() {
  const to = join(folder, 'spindle');
  execFileSync('go', ['build', '-o', to, './cmd/spindle'], { cwd: join(here, '../../..'), stdio: 'inherit' });
  return to;
}

function start(...args) {
  const child = spawn(...args);
  started.push(child);
  return child;
}

function end(child) {
  return new Promise((resolve, reject) => child.on('error', reject).on('exit', (code) => resolve(code ?? 1)));
}

async function startEmulator() {
  const address = `127.0.0.1:${await freePort()}`;
  const emulator = start(findEmulator(), ['--host_port', address], { stdio: 'ignore' });
  const ended = end(emulator).then(() => Promise.reject(new Error('the emulator has ended')));
  await Promise.race([ended, listening(address)]);
  ended.catch(() => {});
  return address;
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function listening(address) {
  const [host, port] = address.split(':');
  const connects = () =>
    new Promise((resolve) => {
      const socket = connect(Number(port), host, () => socket.destroy(resolve(true)));
      socket.on('error', () => resolve(false));
    });
  return (async () => {
    while (!(await connects())) await new Promise((resolve) => setTimeout(resolve, 50));
  })();
}

function findEmulator() {
  const inPath = (name) => process.env.PATH.split(delimiter).map((folder) => join(folder, name));
  const besideGcloud = inPath('gcloud').filter(executable).map((gcloud) => join(dirname(realpathSync(gcloud)), 'cloud_spanner_emulator/emulator_main'));
  const candidates = process.env.SPINDLE_EMULATOR
    ? [process.env.SPINDLE_EMULATOR]
    : [...inPath('emulator_main'), ...besideGcloud, '/usr/lib/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main'];
  const found = candidates.find(executable);
  if (!found) throw new Error('there is no Cloud Spanner emulator: gcloud components install cloud-spanner-emulator, or name emulator_main in SPINDLE_EMULATOR');
  return found;
}

function executable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
