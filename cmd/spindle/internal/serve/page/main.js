// The page: events change the model, and frames draw it.

import {model, now, named, stale, age, snapshot, old, look, away} from "./model.js";
import {listen} from "./stream.js";
import {List, filters, columns} from "./list.js";
import {Detail} from "./detail.js";
import {spans} from "./timeline.js";
import {clock, short, plain, put, plural, element} from "./text.js";

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

choices($("filters"), Object.fromEntries(Object.entries(filters).map(([k, [label]]) => [k, label])), "show");
choices($("spans"), {"2m": "2 min", "15m": "15 min", "1h": "1 h"}, "span");

// The view is in the address, so that it can be kept and sent.
const initial = {...list.view};
const allowed = {show: filters, span: spans, sort: columns};

function fromAddress() {
  for (const [key, value] of new URLSearchParams(location.search)) {
    if (key in initial && (!allowed[key] || Object.hasOwn(allowed[key], value))) list.view[key] = value;
  }
  $("search").value = list.view.q;
}

function toAddress() {
  const p = new URLSearchParams(Object.entries(list.view).filter(([key, value]) => value !== initial[key]));
  history.replaceState(null, "", p.size ? "?" + p : location.pathname);
}

function changed() {
  list.refresh();
  count();
  toAddress();
}

list.onView = toAddress;

// count says how many locks each filter lets through, and which filter and which time are chosen.
function count() {
  const n = list.counts();
  for (const b of $("filters").children) {
    const {name} = b.dataset;
    put(b.querySelector(".number"), n[name].toLocaleString("en"));
    b.classList.toggle("some", n[name] > 0);
    b.setAttribute("aria-pressed", String(name === list.view.show));
    if (name === "missing") b.hidden = !n.missing && list.view.show !== name; // few tables have locks that are expected
  }
  for (const b of $("spans").children) b.setAttribute("aria-pressed", String(b.dataset.name === list.view.span));
}

let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    list.view.q = $("search").value;
    list.scroller.scrollTop = 0;
    changed();
    put($("said"), plural(list.locks.length, "lock"));
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
  put($("pulse-text"), text);
  put($("clock"), model.at ? clock(now()) + " UTC" : "");
  put($("age"), !model.looked ? "" : ago(age()) + (model.next > 3000 ? `, every ${short(model.next)}` : ""));
  const box = $("banner");
  box.hidden = !banner;
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
  const timely = list.view.show === "late" || list.view.sort === "state"; // what is there, and where, changes with time
  if (drawn !== model.rev || timely) list.refresh();
  drawn = model.rev;
  count();
  status();
}

listen({
  heard() {
    link = "live";
    heard = performance.now();
  },
  snapshot(f) {
    const chosen = [detail.id, list.active, list.opened].map((id) => id === null ? id : model.locks.get(id)?.name);
    snapshot(f);
    [detail.id, list.active, list.opened] = chosen.map((name) => name === null ? null : named(name)?.id ?? -1);
    $("where").textContent = `${model.table}${model.prefix ? " · " + model.prefix + "…" : ""} · ${model.database}`;
    document.title = model.table + " · spindle";
    redraw();
  },
  look(f) {
    look(f);
    redraw();
  },
  away(f) {
    away(f);
    redraw();
  },
  tick(f) {
    old(f);
    redraw();
  },
  silent(how) {
    link = how;
    status();
  },
});

fromAddress();
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
setInterval(redraw, 1000);
