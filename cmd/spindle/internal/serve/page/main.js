// The page: events change the model, and frames draw it.

import {model, now, stale, age, snapshot, old, look, away} from "./model.js";
import {listen} from "./stream.js";
import {List, filters} from "./list.js";
import {Detail} from "./detail.js";
import {spans} from "./timeline.js";
import {clock, short, plain, element} from "./text.js";

const $ = (id) => document.getElementById(id);

let link = "connecting"; // connecting, live, lost, resting
let heard = 0;

const detail = new Detail($("detail"), () => {
  list.close();
  $("grid").focus();
});
const list = new List((id) => detail.show(id));

function choices(parent, names, key) {
  for (const [name, label] of Object.entries(names)) {
    const button = element("button", "", label, element("span", "number"));
    button.type = "button";
    button.dataset.name = name;
    button.addEventListener("click", () => {
      list.view[key] = name;
      changed();
    });
    parent.append(button);
  }
}

choices($("filters"), Object.fromEntries(Object.entries(filters).map(([k, [label]]) => [k, label])), "filter");
choices($("spans"), {"2m": "2 min", "15m": "15 min", "1h": "1 h"}, "span");

// The view is in the address, so that it can be kept and sent.
function fromAddress() {
  const q = new URLSearchParams(location.search);
  const view = list.view;
  view.q = q.get("q") || "";
  if (Object.hasOwn(filters, q.get("show"))) view.filter = q.get("show");
  if (Object.hasOwn(spans, q.get("span"))) view.span = q.get("span");
  if (["name", "holder", "state", "changes"].includes(q.get("sort"))) view.sort = q.get("sort");
  view.down = q.has("down");
  $("search").value = view.q;
}

function toAddress() {
  const {q, filter, span, sort, down} = list.view;
  const p = new URLSearchParams();
  if (q) p.set("q", q);
  if (filter !== "all") p.set("show", filter);
  if (span !== "1h") p.set("span", span);
  if (sort !== "name") p.set("sort", sort);
  if (down) p.set("down", "");
  const text = p.toString();
  history.replaceState(null, "", text ? "?" + text : location.pathname);
}

function changed() {
  list.refresh();
  count();
  press();
  toAddress();
}

list.onView = toAddress;

function press() {
  for (const b of $("filters").children) b.setAttribute("aria-pressed", String(b.dataset.name === list.view.filter));
  for (const b of $("spans").children) b.setAttribute("aria-pressed", String(b.dataset.name === list.view.span));
}

function count() {
  const n = list.counts();
  for (const b of $("filters").children) {
    const text = n[b.dataset.name].toLocaleString("en");
    const number = b.querySelector(".number");
    if (number.textContent !== text) number.textContent = text;
    b.classList.toggle("some", n[b.dataset.name] > 0);
    // Few tables have locks that are expected.
    if (b.dataset.name === "missing") b.hidden = !n.missing && list.view.filter !== "missing";
  }
}

let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    list.view.q = $("search").value;
    list.scroller.scrollTop = 0;
    changed();
    say(`${list.locks.length} ${list.locks.length === 1 ? "lock" : "locks"}`);
  }, 80);
});
$("search").addEventListener("keydown", (e) => {
  if (e.key === "ArrowDown" || e.key === "Enter") {
    $("grid").focus();
    e.preventDefault();
  }
});
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && e.target !== $("search")) {
    $("search").focus();
    $("search").select();
    e.preventDefault();
  }
  if (e.key === "Escape" && e.target === $("grid")) detail.close();
});

function say(text) {
  if ($("said").textContent !== text) $("said").textContent = text;
}

// ago does not change more often than somebody reads.
function ago(ms) {
  if (ms < 1500) return "read now";
  return `read ${ms < 60000 ? Math.floor(ms / 1000) + "s" : short(ms)} ago`;
}

// status says how far what is shown can be trusted.
function status() {
  let state = link;
  let text = {connecting: "connecting", lost: "no connection", resting: "resting", live: "live"}[link];
  let banner = "";
  const shown = model.at ? ` The data shown is from ${clock(model.at)} UTC.` : "";
  if (link === "lost") {
    banner = "spindle serve does not answer; retrying." + shown;
  } else if (link === "live" && stale()) {
    state = "away";
    text = "no database";
    const since = model.away ? model.away.since : model.looked || heard;
    banner = `The database has not answered for ${short(performance.now() - since)}.` + shown + (model.away ? " " + plain(model.away.error) : "");
  }
  document.body.dataset.state = state;
  if ($("pulse-text").textContent !== text) $("pulse-text").textContent = text;
  const at = model.at ? clock(now()) + " UTC" : "";
  if ($("clock").textContent !== at) $("clock").textContent = at;
  const read = !model.looked ? "" : ago(age()) + (model.next > 3000 ? `, every ${short(model.next)}` : "");
  if ($("age").textContent !== read) $("age").textContent = read;
  const box = $("banner");
  if (box.hidden !== !banner) box.hidden = !banner;
  if (banner && box.textContent !== banner) {
    // Only what is new is read out, and not each second that passes.
    box.setAttribute("aria-live", box.dataset.kind === state ? "off" : "polite");
    box.dataset.kind = state;
    box.textContent = banner;
  }
  if (!banner) delete box.dataset.kind;
}

let drawn = -1;
function redraw() {
  if (drawn === model.rev) return;
  drawn = model.rev;
  list.refresh();
}

function live() {
  link = "live";
  heard = performance.now();
}

listen({
  snapshot(f) {
    live();
    snapshot(f);
    $("where").textContent = `${model.table}${model.prefix ? " · " + model.prefix + "…" : ""} · ${model.database}`;
    document.title = model.table + " · spindle";
    redraw();
    count();
    status();
  },
  age(f) {
    old(f);
    list.refresh();
    count();
    status();
  },
  look(f) {
    live();
    look(f);
    count();
    redraw();
    status();
  },
  away(f) {
    live();
    away(f);
    status();
  },
  tick: live,
  lost() {
    link = "lost";
    status();
  },
  resting() {
    link = "resting";
    status();
  },
});

fromAddress();
press();
list.refresh();
count();

// With reduced motion, everything moves in steps of a second.
const still = matchMedia("(prefers-reduced-motion: reduce)");
let last = 0;
function frame(t) {
  requestAnimationFrame(frame);
  if (t - last < (still.matches ? 1000 : 40)) return;
  last = t;
  list.frame();
  detail.update();
}
requestAnimationFrame(frame);
setInterval(() => {
  status();
  count();
  if (list.view.filter === "late" || list.view.sort === "state") list.refresh();
}, 1000);
