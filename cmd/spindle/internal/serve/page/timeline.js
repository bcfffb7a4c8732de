// The terms of a lock as bars on a strip of time that moves to the left.

import {now, colour} from "./model.js";
import {show, short, when, plural, element} from "./text.js";

export const spans = {"2m": 120e3, "15m": 900e3, "1h": 3600e3};

// pieces are the terms of a lock, what lies between them, and what is not known. The last has no end.
export function pieces(lock) {
  const all = [];
  let at = lock.known;
  let end = "";
  for (const t of lock.terms) {
    if (t.from > at && at >= lock.known) all.push({kind: "gap", from: at, to: t.from, end});
    all.push({kind: "term", from: t.from, to: t.to || 0, term: t});
    at = t.to || 0;
    end = t.end || "";
    if (!at) return all;
  }
  all.push({kind: "gap", from: at, to: 0, end});
  return all;
}

// why says what an end means.
const why = {
  "expired": "expired: no heartbeat arrived within the lease",
  "released": "released, or an operator broke the lock",
  "handed over": "handed over: its holder announced that it was leaving",
  "reclaimed": "reclaimed by the same holder",
  "deleted": "its rows were deleted",
  "unseen": "ended between two reads, for an unknown reason",
  "missed": "began and ended between two reads",
};

export function ending(t) {
  if (!t.to) return "lasts";
  return why[t.end] || t.end;
}

export function describe(lock, piece, at) {
  const to = piece.to || at;
  const span = `${when(piece.from, at)} – ${piece.to ? when(piece.to, at) : "now"} UTC, ${short(to - piece.from)}`;
  if (piece.kind === "unknown") return ["not known", "before the first look of spindle serve"];
  if (piece.kind === "gap") {
    const reason = {"expired": "the previous holder's lease had expired", "": "no process claimed it"}[piece.end];
    return ["no holder", span, reason || "after the previous term was " + piece.end];
  }
  const t = piece.term;
  if (t.count) return [`${t.count} terms`, span, `held for at most ${short(t.held)} of it`, t.holder ? show(t.holder) : "by several or unknown holders"];
  if (t.end === "missed") return ["held by an unknown holder", `between ${when(t.from, at)} and ${when(t.to, at)} UTC`, ending(t)];
  return [t.holder ? show(t.holder) : "holder not known", span, t.to ? ending(t) : "lasts", "token " + t.key];
}

// Strip draws one lock's timeline.
export class Strip {
  constructor() {
    this.inner = element("div", "strip");
    this.blind = element("div", "blind");
    this.element = element("div", "track", this.inner, this.blind);
    this.element.setAttribute("aria-hidden", "true");
    this.rev = -1;
    this.base = 0;
  }

  // update draws what has changed, and moves the rest. Width is the track's, in pixels.
  update(lock, span, width, blindFrom) {
    const at = now();
    if (lock !== this.lock || lock.rev !== this.rev || span !== this.span || width !== this.width || at - this.base > span / 100) {
      Object.assign(this, {lock, rev: lock.rev, span, width, base: at});
      this.draw(at);
    }
    this.inner.style.transform = `translateX(${-(at - this.base) / span * width}px)`;
    this.blind.hidden = !blindFrom;
    if (blindFrom) this.blind.style.left = Math.max(0, 1 - (at - blindFrom) / span) * 100 + "%";
  }

  draw(at) {
    const {lock, span, width} = this;
    const start = at - span;
    const x = (t) => (t - start) / span * width;
    const bars = [];
    if (lock.known > start) bars.push(bar("unknown", 0, x(lock.known)));
    const all = pieces(lock);
    for (const p of all) {
      if (p.to && p.to < start) continue;
      const from = Math.max(x(p.from), -width);
      const to = p.to ? x(p.to) : 2 * width;
      if (p.kind === "gap") {
        bars.push(bar("gap " + (p.end === "expired" ? "bad" : "calm"), from, to - from));
        continue;
      }
      const t = p.term;
      let style = "term";
      if (t.end === "missed") style += " missed";
      else if (t.count && !t.holder) style += " many";
      else style += " c" + colour(lock, t.holder || "");
      const b = bar(style, from, to - from);
      const seen = Math.min(to, width) - Math.max(from, 0);
      if (seen > 44) {
        const label = element("span", "label", t.count ? `${t.count} terms` : show(t.holder || ""));
        label.style.left = Math.max(0, -from) + "px";
        label.style.maxWidth = seen - 8 + "px";
        b.append(label);
      }
      bars.push(b);
    }
    this.inner.replaceChildren(...bars);
  }

  // find is the piece at a place on the track; what is small is found near it.
  find(pixel) {
    const at = now();
    const reach = this.span / this.width * 3;
    const t = at - this.span + pixel / this.width * this.span;
    if (t < this.lock.known - reach) return {kind: "unknown", from: 0, to: this.lock.known};
    const near = pieces(this.lock).filter((p) => p.from - reach <= t && t <= (p.to || at) + reach);
    near.sort((a, b) => ((a.to || at) - a.from) - ((b.to || at) - b.from));
    return near[0];
  }
}

function bar(className, left, width) {
  const e = element("div", className);
  e.style.left = left + "px";
  e.style.width = Math.max(width, 1) + "px";
  return e;
}

// axis draws the scale above the timelines.
export function axis(span) {
  const names = {"2m": ["−2 min", "−90 s", "−1 min", "−30 s"], "15m": ["−15 min", "", "−10 min", "", "−5 min", ""], "1h": ["−60 min", "−45", "−30", "−15"]}[span];
  const e = element("div", "axis");
  e.setAttribute("aria-hidden", "true");
  names.forEach((name, i) => {
    const mark = element("span", "", name);
    mark.style.left = i / names.length * 100 + "%";
    e.append(mark);
  });
  e.append(element("span", "now", "now"));
  return e;
}

// summary is the timeline in words, for those who don't see it.
export function summary(lock, at, span) {
  const start = at - span;
  let terms = 0;
  let gap = 0;
  for (const p of pieces(lock)) {
    const from = Math.max(p.from, start);
    const to = Math.min(p.to || at, at);
    if (to <= from) continue;
    if (p.kind === "term") terms += p.term.count || 1;
    else gap += to - from;
  }
  return `${plural(terms, "term")}, ${gap > 0 ? "without a holder for " + short(gap) : "no gap"}`;
}
