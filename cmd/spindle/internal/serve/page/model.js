// What the page knows: the locks, the time by Spanner's clock, and how fresh that is.

const hour = 3600e3;
const colours = 10;
const holders = new Map(); // their colours: the first ones have one of their own

export const model = {
  database: "", table: "", prefix: "", released: false,
  next: 1000,       // from one look to the next
  locks: new Map(), // by id
  at: 0,            // of the last look, by Spanner's clock
  looked: 0,        // when that was, by performance.now
  offset: 0,        // Spanner's clock less performance.now
  away: null,       // {since, error}, since by performance.now
  rev: 0,           // grows when locks come, go or change, apart from heartbeats
};

// now is the time by Spanner's clock.
export function now() {
  return performance.now() + model.offset;
}

// stale tells that what is shown may not be so any more.
export function stale() {
  return model.looked === 0 || performance.now() - model.looked > Math.max(3000, 3 * model.next);
}

// seldom tells that looks are so far apart that a heartbeat may have come since, and most likely has.
function seldom() {
  return model.next > 3000;
}

// age says how old what is shown is.
export function age() {
  return performance.now() - model.looked;
}

function looked(at) {
  if (!model.looked) model.rev++; // an empty list says something else from now on
  model.looked = performance.now();
  model.at = at;
  model.away = null;
  const offset = at - model.looked;
  // What arrives late says nothing of the clock; what arrives earlier than ever does.
  model.offset = offset > model.offset || model.offset - offset > 2000 ? offset : model.offset + (offset - model.offset) * 0.05;
}

export function snapshot(f) {
  Object.assign(model, {database: f.database, table: f.table, prefix: f.prefix || "", released: Boolean(f.released), next: f.next});
  const before = new Map([...model.locks.values()].map((l) => [l.name, l])); // a restarted spindle serve has other ids
  model.locks = new Map();
  for (const l of f.locks) put(l, before.get(l.name));
  model.rev++;
  if (f.at) looked(f.at);
  else Object.assign(model, {looked: 0, at: 0, away: null}); // it has not read the table yet
  if (f.away) away(f.away);
}

// old takes in how long ago the look was that a snapshot shows.
export function old(f) {
  if (!model.looked) return;
  model.looked = performance.now() - f.old;
  model.offset = Math.max(model.offset, model.at - model.looked);
}

export function look(f) {
  model.next = f.next;
  looked(f.at);
  const beats = f.beats || [];
  for (let i = 0; i < beats.length; i += 2) {
    const lock = model.locks.get(beats[i]);
    if (lock) lock.heartbeat = f.at - beats[i + 1];
  }
  for (const l of f.locks || []) put(l, model.locks.get(l.id));
  for (const id of f.forgotten || []) model.locks.delete(id);
  if (f.locks || f.forgotten) model.rev++;
}

export function away(f) {
  model.away = {since: performance.now() - f.for, error: f.error};
  if (!model.looked) model.rev++; // the empty list says why it is empty
}

// none is what a lock has that has nothing: keys without a value are left out.
const none = {holder: "", value: "", token: "", successor: "", problem: "", group: "", member: "", done: "", done_by: "", kind: "", changes: 0, jeopardies: 0, waiting: 0, expected: false};

// put takes in a lock: what spindle status says of it, and its history.
function put(l, was) {
  const lock = was || {terms: [], palette: new Map(), rev: 0};
  const terms = l.all ? l.terms || [] : joined(lock.terms, l.terms || []);
  Object.assign(lock, none, l, {
    terms, rev: lock.rev + 1,
    heartbeat: Date.parse(l.heartbeat) || 0, lease: (l.lease_seconds || 0) * 1000, done_at: Date.parse(l.done_at) || 0,
    waiting_since: Date.parse(l.at) - (l.longest_wait_seconds || 0) * 1000,
    text: [l.name, l.holder, l.value, l.token, l.done, l.done_by, l.kind].join("\n").toLowerCase(),
  });
  model.locks.set(l.id, lock);
}

// joined puts the terms that have changed in the place of what they were, and forgets what is too old to be seen.
function joined(terms, changed) {
  const keys = new Set(changed.map((t) => t.key));
  const oldest = model.at - 1.1 * hour;
  return terms.filter((t) => !keys.has(t.key) && !(t.to && t.to < oldest)).concat(changed);
}

// partitions are those that a member has, by name.
export function partitions(member) {
  if (!member.group) return [];
  return [...model.locks.values()].filter((l) => l.member === member.name && held(l)).sort((a, b) => a.name < b.name ? -1 : 1);
}

export function named(name) {
  for (const lock of model.locks.values()) if (lock.name === name) return lock;
  return null;
}

export function held(lock) {
  return lock.state === "held" || lock.state === "leaving";
}

export function damaged(lock) {
  return lock.state === "orphaned" || lock.state === "unreadable";
}

// missing: somebody should hold it, and nobody does.
export function missing(lock) {
  return lock.expected && !held(lock);
}

// left is what is left of the lease, as a share of it: negative once it is over, and null if there is none. If looks are far
// apart, it is what was left at the last one.
export function left(lock, at) {
  if (!lock.lease || !lock.heartbeat) return null;
  return 1 - ((seldom() ? Math.min(at, model.at) : at) - lock.heartbeat) / lock.lease;
}

// late: two thirds of the lease have passed without a heartbeat.
export function late(lock, at) {
  return held(lock) && left(lock, at) < 1 / 3;
}

// mood is how well a lock is.
export function mood(lock, at) {
  const share = left(lock, at);
  if (damaged(lock) || missing(lock) || lock.state === "expired" || share !== null && share < 1 / 3) return "bad";
  return share === null ? "idle" : share < 0.6 ? "warn" : "good";
}

// colour is the number of a holder's colour: the same for all its locks, unless another holder of the lock has it.
export function colour(lock, holder) {
  if (holders.size > 10000) holders.clear();
  if (!holders.has(holder)) holders.set(holder, holders.size % colours);
  if (!lock.palette.has(holder)) {
    if (lock.palette.size >= colours) lock.palette.clear();
    const taken = new Set(lock.palette.values());
    let c = holders.get(holder);
    while (taken.has(c)) c = (c + 1) % colours;
    lock.palette.set(holder, c);
  }
  return lock.palette.get(holder);
}
