// The locks as rows. Only those that are seen are in the document, so thousands cost no more than a few.

import {model, now, stale, held, damaged, missing, left, late, mood, colour} from "./model.js";
import {Strip, axis, spans, summary, describe} from "./timeline.js";
import {show, short, seconds, plain, doer, put, plural, element} from "./text.js";

const $ = (id) => document.getElementById(id);

export const filters = {
  all: ["All", () => true],
  held: ["Held", (l) => held(l)],
  late: ["Late", (l, at) => late(l, at)],
  expired: ["Expired", (l) => l.state === "expired"],
  open: ["Not held", (l) => !held(l) && !damaged(l)],
  missing: ["Missing", (l) => missing(l)],
  damaged: ["Damaged", (l) => damaged(l)],
};

// wanted reports whether a lock has all the words of a search.
function wanted(q) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return (lock) => words.every((w) => lock.text.includes(w));
}

const collator = new Intl.Collator("en", {numeric: true});
const byName = (a, b) => collator.compare(a.name, b.name);

// urgency puts first what somebody should look at.
function urgency(lock, at) {
  if (damaged(lock) || missing(lock)) return 0;
  if (lock.state === "expired") return 1;
  if (late(lock, at)) return 2;
  return {unconfirmed: 3, leaving: 4, held: 5, paused: 6, released: 6}[lock.state] || 7;
}

export const columns = {
  name: ["Lock", byName],
  holder: ["Holder", (a, b) => collator.compare(a.holder, b.holder)],
  state: ["Lease", (a, b, at) => urgency(a, at) - urgency(b, at)],
  changes: ["Changes", (a, b) => b.changes - a.changes],
};

export class List {
  // chosen is called with the lock that somebody opens.
  constructor(chosen) {
    this.chosen = chosen;
    this.view = {q: "", show: "all", sort: "name", down: false, span: "1h"};
    this.locks = [];
    this.rows = new Map(); // by lock id
    this.places = new Map(); // of members and their partitions, by lock id: {level, parts, open}
    this.unfolded = new Set(); // names of members
    this.active = null;    // the id of the lock that the keyboard is at
    this.opened = null;
    this.grid = $("grid");
    this.scroller = $("scroller");
    this.space = $("space");
    this.makeHead();
    this.scroller.addEventListener("scroll", () => this.place(), {passive: true});
    new ResizeObserver(() => this.measure()).observe(this.scroller);
    this.grid.addEventListener("keydown", (e) => this.key(e));
    this.space.addEventListener("click", (e) => {
      const row = e.target.closest(".row");
      if (row && e.target.closest(".fold")) return this.fold(Number(row.dataset.id));
      if (row && !getSelection().toString()) this.open(Number(row.dataset.id));
    });
    this.hover();
  }

  makeHead() {
    for (const [key, [name]] of Object.entries(columns)) {
      const button = element("button", "", name, element("span", "arrow"));
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(key));
      const cell = element("div", "cell " + key, button);
      cell.setAttribute("role", "columnheader");
      cell.dataset.key = key;
      $("axis").before(cell);
    }
  }

  sortBy(key) {
    this.view.down = this.view.sort === key && !this.view.down;
    this.view.sort = key;
    this.refresh();
    this.onView();
  }

  // refresh chooses and sorts the locks.
  refresh() {
    const at = now();
    const {q, show: filter, sort, down, span} = this.view;
    const chosen = filters[filter][1];
    const found = wanted(q);
    const all = [];
    for (const lock of model.locks.values()) {
      if (chosen(lock, at) && found(lock)) all.push(lock);
    }
    const compare = columns[sort][1];
    all.sort((a, b) => (down ? -1 : 1) * compare(a, b, at) || byName(a, b));
    this.places.clear();
    this.locks = q.trim() || filter !== "all" ? all : this.tree(all);
    if (!this.locks.some((l) => l.id === this.active)) this.active = null;
    this.grid.setAttribute("aria-rowcount", this.locks.length + 1);
    for (const cell of $("head").querySelectorAll("[data-key]")) {
      const on = cell.dataset.key === sort;
      cell.setAttribute("aria-sort", on ? (down ? "descending" : "ascending") : "none");
      cell.querySelector(".arrow").textContent = on ? (down ? "▾" : "▴") : "";
    }
    if (this.axisSpan !== span) {
      this.axisSpan = span;
      $("axis").replaceChildren(axis(span));
    }
    const empty = $("empty");
    empty.hidden = all.length > 0;
    if (!all.length) {
      empty.textContent = !model.looked ? (model.away ? "The table has not been read yet." : "Reading the table …")
        : model.locks.size ? "No lock matches." : model.released ? "There are no locks in the table."
          : "No lock is held. To show released locks, start spindle serve with --released.";
    }
    this.measure();
  }

  // counts says for each filter how many of the locks that the search finds it lets through.
  counts() {
    const at = now();
    const found = wanted(this.view.q);
    const n = Object.fromEntries(Object.keys(filters).map((k) => [k, 0]));
    for (const lock of model.locks.values()) {
      if (!found(lock)) continue;
      for (const [k, [, chosen]] of Object.entries(filters)) if (chosen(lock, at)) n[k]++;
    }
    return n;
  }

  // tree puts the partitions that a member has below it, where they can be folded away. What nobody has stays for
  // itself: it is what somebody should see.
  tree(all) {
    const members = new Map();
    for (const l of all) if (l.group && !l.member) members.set(l.name, {lock: l, parts: []});
    const top = all.filter((l) => {
      const member = held(l) && members.get(l.member);
      if (member) member.parts.push(l);
      return !member;
    });
    return top.flatMap((l) => {
      const parts = members.get(l.name)?.parts || [];
      if (!parts.length) return [l];
      const open = this.unfolded.has(l.name);
      this.places.set(l.id, {level: 1, parts: parts.length, open});
      if (!open) return [l];
      for (const p of parts) this.places.set(p.id, {level: 2, parts: 0, open: false});
      return [l, ...parts];
    });
  }

  fold(id, open) {
    const place = this.places.get(id);
    if (!place || !place.parts || place.open === open) return;
    const name = model.locks.get(id).name;
    if (place.open) this.unfolded.delete(name);
    else this.unfolded.add(name);
    this.active = id;
    this.refresh();
  }

  measure() {
    this.height = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 56;
    this.space.style.height = this.locks.length * this.height + "px";
    this.place();
    const row = this.rows.values().next().value;
    this.width = row ? row.strip.element.clientWidth : 0;
    this.frame();
  }

  // place puts the rows that are seen into the document, and takes the others out.
  place() {
    const top = this.scroller.scrollTop;
    const first = Math.max(Math.floor(top / this.height) - 3, 0);
    const last = Math.min(Math.ceil((top + this.scroller.clientHeight) / this.height) + 3, this.locks.length);
    const before = this.rows;
    this.rows = new Map();
    for (let i = first; i < last; i++) {
      const lock = this.locks[i];
      const row = before.get(lock.id) || new Row(this.space, lock.id);
      before.delete(lock.id);
      this.rows.set(lock.id, row);
      row.at(lock, i, i * this.height, this.places.get(lock.id));
    }
    for (const row of before.values()) row.element.remove();
    this.mark();
    this.frame();
  }

  mark() {
    for (const [id, row] of this.rows) {
      row.element.classList.toggle("active", id === this.active);
      row.element.setAttribute("aria-selected", String(id === this.opened));
    }
    if (this.active !== null && this.rows.has(this.active)) this.grid.setAttribute("aria-activedescendant", "lock-" + this.active);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  // frame moves what moves with time.
  frame() {
    const at = now();
    const blind = stale() && model.at ? model.at : 0;
    for (const row of this.rows.values()) {
      row.update(at);
      if (this.width) row.strip.update(row.lock, spans[this.view.span], this.width, blind);
    }
  }

  open(id) {
    this.active = this.opened = id;
    this.mark();
    this.chosen(id);
  }

  close() {
    this.opened = null;
    this.mark();
  }

  key(e) {
    if (e.target !== this.grid || e.ctrlKey || e.metaKey || e.altKey || !this.locks.length) return;
    const page = Math.max(Math.floor(this.scroller.clientHeight / this.height) - 1, 1);
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity}[e.key];
    if (step !== undefined) {
      let i = this.locks.findIndex((l) => l.id === this.active);
      i = i < 0 ? 0 : Math.min(Math.max(i + step, 0), this.locks.length - 1);
      this.active = this.locks[i].id;
      const top = i * this.height;
      const view = this.scroller;
      if (top < view.scrollTop) view.scrollTop = top;
      else if (top + this.height > view.scrollTop + view.clientHeight) view.scrollTop = top + this.height - view.clientHeight;
      this.place();
      if (this.opened !== null) this.open(this.active);
    } else if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
      this.fold(this.active, e.key === "ArrowRight");
    } else if ((e.key === "Enter" || e.key === " ") && this.active !== null) {
      this.open(this.active);
      $("detail").focus();
    } else {
      return;
    }
    e.preventDefault();
  }

  // hover says what is under the pointer on a timeline.
  hover() {
    const tip = $("tip");
    const hide = () => { tip.hidden = true; };
    this.space.addEventListener("pointermove", (e) => {
      const track = e.target.closest(".track");
      const row = track && this.rows.get(Number(track.closest(".row").dataset.id));
      if (!row || !this.width) return hide();
      const piece = row.strip.find(e.clientX - track.getBoundingClientRect().left);
      if (!piece) return hide();
      const [title, ...lines] = describe(row.lock, piece, now());
      const head = element("strong", "", title);
      if (piece.kind === "term" && piece.term.holder) head.prepend(element("i", "swatch c" + colour(row.lock, piece.term.holder)));
      tip.replaceChildren(head, ...lines.map((l) => element("div", "", l)));
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.max(8, Math.min(e.clientX - box.width / 2, innerWidth - box.width - 8)) + "px";
      const below = e.clientY + 18;
      tip.style.top = (below + box.height > innerHeight - 8 ? e.clientY - box.height - 12 : below) + "px";
    });
    this.space.addEventListener("pointerleave", hide);
    this.scroller.addEventListener("scroll", hide, {passive: true});
  }
}

class Row {
  constructor(parent, id) {
    this.element = $("row").content.cloneNode(true).firstElementChild;
    for (const e of this.element.querySelectorAll("[data-as]")) this[e.dataset.as] = e;
    this.ago = element("span", "");
    this.strip = new Strip();
    this.time.prepend(this.strip.element);
    this.element.dataset.id = id;
    this.element.id = "lock-" + id;
    parent.append(this.element);
  }

  at(lock, index, top, place) {
    const {level = 1, parts = 0, open = false} = place || {};
    if (level !== this.level || parts !== this.parts || open !== this.open) {
      Object.assign(this, {level, parts, open, rev: -1});
      this.element.setAttribute("aria-level", level);
      this.element.classList.toggle("part", level > 1);
      if (parts) this.element.setAttribute("aria-expanded", String(open));
      else this.element.removeAttribute("aria-expanded");
      this.fold.textContent = !parts ? "" : open ? "▾" : "▸";
    }
    if (lock !== this.lock) this.rev = -1; // its id was another lock's at a spindle serve that was restarted since
    this.lock = lock;
    this.element.style.transform = `translateY(${top}px)`;
    this.element.setAttribute("aria-rowindex", index + 2);
  }

  update(at) {
    const lock = this.lock;
    if (this.rev !== lock.rev) {
      this.rev = lock.rev;
      put(this.name, show(lock.name));
      const parts = this.parts ? plural(this.parts, "partition") : "";
      put(this.value, [parts, this.level > 1 ? "" : show(lock.value)].filter(Boolean).join(" · "));
      this.done.replaceChildren(...lock.done ? ["done ", this.ago, " ago: ", element("bdi", "", show(lock.done)), ", by ", doer(lock)]
        : lock.problem ? [element("bdi", "wrong", plain(lock.problem))] : []);
      put(this.missing, missing(lock) ? "should be held" : "");
      put(this.holder, lock.holder ? show(lock.holder) : "nobody");
      this.holder.classList.toggle("faint", !lock.holder);
      this.swatch.className = "swatch " + (lock.holder ? "c" + colour(lock, lock.holder) : "none");
      put(this.changes, String(lock.changes));
      this.changes.classList.toggle("faint", !lock.changes);
      this.element.dataset.state = lock.state;
      put(this.words, summary(lock, at, 3600e3));
    }
    const last = lock.terms[lock.terms.length - 1];
    let since = "";
    if (lock.token) since = `${lock.token} · ${short(at - Number(lock.token) / 1000)}`;
    else if (last && last.to) since = `for ${short(at - last.to)}`;
    put(this.token, since);
    const longest = short(at - lock.waiting_since);
    put(this.waiting, !lock.waiting ? "" : lock.waiting === 1 ? `1 waits, for ${longest}` : `${lock.waiting} wait, up to ${longest}`);
    if (lock.done) put(this.ago, short(at - lock.done_at));
    const share = left(lock, at);
    const feels = mood(lock, at);
    if (this.mood !== feels) this.element.dataset.mood = this.mood = feels;
    put(this.state, held(lock) && share <= 0 ? "silent" : lock.state);
    put(this.left, share === null ? "" : share > 0 ? `${seconds(share * lock.lease)} of ${short(lock.lease)}` : `${short(-share * lock.lease)} over`);
    this.fill.style.transform = `scaleX(${Math.min(Math.max(share || 0, 0), 1).toFixed(4)})`;
  }
}
