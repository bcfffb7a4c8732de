// All about one lock: what the table says of it, its terms, and the command that would break it.

import {model, now, held, left, mood, colour, partitions, named} from "./model.js";
import {pieces, ending} from "./timeline.js";
import {show, short, seconds, when, release, plain, doer, put, plural, element} from "./text.js";

export class Detail {
  constructor(panel, closed) {
    this.panel = panel;
    this.closed = closed;
    this.id = null;
    panel.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.close();
    });
  }

  show(id) {
    this.id = id;
    this.rev = -1;
    this.panel.hidden = false;
    document.body.classList.add("with-detail");
    this.panel.scrollTop = 0;
    this.update();
  }

  close() {
    if (this.id === null) return;
    this.id = null;
    this.panel.hidden = true;
    document.body.classList.remove("with-detail");
    this.closed();
  }

  update() {
    if (this.id === null) return;
    const lock = model.locks.get(this.id);
    if (!lock) return this.close();
    const at = now();
    if (lock.rev !== this.rev || lock !== this.lock) {
      const had = this.panel.contains(document.activeElement) && document.activeElement.dataset.keep;
      this.rev = lock.rev;
      this.lock = lock;
      this.draw(lock, at);
      if (had) this.panel.querySelector(`[data-keep="${had}"]`)?.focus();
    }
    for (const [e, text] of this.timely) put(e, text(at));
  }

  draw(lock, at) {
    const close = button("✕", "close", () => this.close());
    close.setAttribute("aria-label", "Close");
    const title = element("h2", "", element("bdi", "", show(lock.name)));
    this.timely = []; // elements whose text changes with time
    const timely = (text) => {
      this.timely.push([element("span", ""), text]);
      return this.timely.at(-1)[0];
    };
    const lease = (at) => {
      const share = left(lock, at);
      return share === null ? short(lock.lease) : `${short(lock.lease)}, ${share > 0 ? seconds(share * lock.lease) + " left" : short(-share * lock.lease) + " over"}`;
    };
    const facts = element("dl", "facts");
    const fact = (name, ...what) => facts.append(element("dt", "", name), element("dd", "", ...what));
    fact("State", element("span", "chip", lock.state));
    if (lock.expected) fact("Expected", held(lock) ? "it should be held, and is" : "it should be held");
    if (lock.kind) fact("Kind", element("bdi", "", show(lock.kind)));
    if (lock.holder) fact("Holder", element("i", "swatch c" + colour(lock, lock.holder)), element("bdi", "", show(lock.holder)));
    if (lock.value) fact("Value", element("bdi", "value", show(lock.value)));
    if (lock.token) fact("Token", lock.token), fact("Since", when(Number(lock.token) / 1000, at, 3) + " UTC, ", timely((at) => short(at - Number(lock.token) / 1000)));
    if (lock.lease) fact("Lease", timely(lease)), fact("Heartbeat", timely((at) => lock.heartbeat ? `${seconds(at - lock.heartbeat)} ago` : ""));
    if (lock.member) fact("Member", element("bdi", "", show(lock.member)));
    const parts = partitions(lock);
    if (parts.length) fact("Partitions", ...parts.slice(0, 500).map((p) => element("bdi", "value", show(p.name.slice(p.name.indexOf("/partition/") + 11)))));
    if (lock.successor) fact("Next", element("bdi", "", show(lock.successor)));
    if (lock.waiting) fact("Waiting", `${plural(lock.waiting, "process", "processes")}, the first for `, timely((at) => short(at - lock.waiting_since)));
    if (lock.done) fact("Last done", element("bdi", "value", show(lock.done)), when(lock.done_at, at, 3) + " UTC, ", timely((at) => `${short(at - lock.done_at)} ago`), ", by ", doer(lock));
    fact("Changes", `${lock.changes} since spindle serve was started`);
    if (lock.jeopardies) fact("Late", `${plural(lock.jeopardies, "time")}, two thirds of the lease passed without a heartbeat`);
    if (lock.problem) fact("Problem", plain(lock.problem));
    facts.dataset.mood = mood(lock, at);
    this.panel.replaceChildren(element("div", "detail-head", title, close), facts, ...this.command(lock), this.terms(lock, at));
  }

  command(lock) {
    let warning = "";
    if (lock.group) {
      warning = " In a group, release a member rather than a partition. All partitions of the member become free immediately, but the member's fenced writes to a partition still commit until another member claims that partition.";
      if (lock.member) lock = named(lock.member) || lock;
    }
    if (!lock.token || !held(lock) && lock.state !== "expired" && lock.state !== "unreadable") return [];
    const code = element("code", "", release(lock, model));
    code.tabIndex = 0;
    code.dataset.keep = "code";
    const copy = button("Copy", "copy", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch { // only on this machine or over HTTPS
        getSelection().selectAllChildren(code);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
    return [element("h3", "", "To break the lock"), element("p", "faint", "This page itself changes nothing. A running holder notices the release at its next heartbeat. Until then, it may still be working when the next holder starts, and only the fence keeps their writes apart. If you can stop the holder, do that instead." + warning),
      element("div", "command", code, copy)];
  }

  terms(lock, at) {
    const body = element("tbody", "");
    for (const p of pieces(lock).reverse().slice(0, 200)) {
      const lasted = short((p.to || at) - p.from);
      const row = element("tr", p.kind + (p.end === "expired" ? " bad" : ""));
      const who = element("td", "");
      if (p.kind === "gap") {
        if (!p.to && !lock.terms.length && lock.state === "free") continue;
        who.append("none");
      } else {
        const t = p.term;
        if (t.holder) who.append(element("i", "swatch c" + colour(lock, t.holder)));
        who.append(element("bdi", "", t.count ? `${t.count} terms` : t.holder ? show(t.holder) : "not known"));
        if (t.to) who.append(element("span", "sub", ending(t)));
      }
      row.append(element("td", "", when(p.from, at)), who, element("td", "", p.to ? lasted : "lasts"));
      body.append(row);
    }
    const head = element("tr", "");
    for (const name of ["From, UTC", "Holder", "Lasted"]) {
      const th = element("th", "", name);
      th.scope = "col";
      head.append(th);
    }
    const known = element("p", "faint", `Known since ${when(lock.known, at, 0)} UTC. One hour is kept.`);
    return element("div", "", element("h3", "", "Terms, latest first"), element("table", "terms", element("thead", "", head), body), known);
  }
}

function button(text, keep, act) {
  const b = element("button", keep, text);
  b.type = "button";
  b.dataset.keep = keep;
  b.addEventListener("click", act);
  return b;
}
