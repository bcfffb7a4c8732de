// How times, durations and the texts of others are written. Whatever is in the table may be hostile: it only ever
// becomes the text of an element, with what would not be seen as itself escaped.

const unseen = /[\p{C}\p{Zl}\p{Zp}]/gu;

const escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x07": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"};

function escaped(c) {
  if (escapes[c]) return escapes[c];
  const n = c.codePointAt(0);
  const hex = n.toString(16);
  if (n < 0x80) return "\\x" + hex.padStart(2, "0");
  return n > 0xffff ? "\\U" + hex.padStart(8, "0") : "\\u" + hex.padStart(4, "0");
}

// show writes a text as the command does: in the quotes in which bash and zsh read it back, if anything is escaped.
export function show(text) {
  const safe = text.replace(unseen, escaped);
  if (safe === text && !text.startsWith("$'")) return text;
  return "$'" + text.replace(/[\\']/g, "\\$&").replace(unseen, escaped) + "'";
}

// plain escapes a text that is not to be read back, such as an error.
export function plain(text) {
  return text.replace(/\n/g, " ").replace(unseen, escaped);
}

// shell quotes a text so that bash and zsh take it for one word that does nothing.
export function shell(text) {
  if (/^[\w./:@%+=,-]+$/.test(text)) return text;
  const shown = show(text);
  return shown === text ? "'" + text.replace(/'/g, "'\\''") + "'" : shown;
}

// release is the command that breaks a lock.
export function release(lock, model) {
  const name = lock.name.startsWith("-") ? ` -- ${shell(lock.name)}` : "";
  let command = "spindle release";
  if (!name) command += ` ${shell(lock.name)}`;
  command += ` --token ${shell(lock.token)} --db ${shell(model.database)}`;
  if (model.table !== "locktable") command += ` --table ${shell(model.table)}`;
  return command + name;
}

// short writes milliseconds as short as they are clear: 40ms, 6.4s, 12s, 3m05s, 2h10m, 5d03h.
export function short(ms) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const s = Math.max(ms, 0) / 1000;
  if (s < 0.1) return Math.round(s * 1000) + "ms";
  if (s < 9.95) return s.toFixed(1) + "s";
  if (s < 60) return Math.floor(s) + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + two(s / 60 % 60) + "m";
  return Math.floor(s / 86400) + "d" + two(s / 3600 % 24) + "h";
}

// seconds writes what is left of a lease; it does not change its width with each tenth.
export function seconds(ms) {
  return ms < 60000 ? (Math.max(ms, 0) / 1000).toFixed(1) + "s" : short(ms);
}

export function clock(ms, digits = 0) {
  return new Date(ms).toISOString().slice(11, digits ? 20 + digits : 19);
}

// when is a time of day, with the date if that is another.
export function when(ms, now, digits = 1) {
  const date = new Date(ms).toISOString().slice(0, 10);
  return (date === new Date(now).toISOString().slice(0, 10) ? "" : date + " ") + clock(ms, digits);
}

// doer is who did what was done last under a lock.
export function doer(lock) {
  return lock.done_by ? element("bdi", "", show(lock.done_by)) : "an unknown holder";
}

// put changes the text of an element, unless that is its text already.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// plural is a number with what is counted.
export function plural(n, one, more = one + "s") {
  return `${n} ${n === 1 ? one : more}`;
}

// element makes an element with a class and a text, or with children.
export function element(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children.filter((c) => c !== null));
  return e;
}
