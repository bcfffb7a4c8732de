// The events of the server: connecting, noticing that it is silent, connecting again.

const silent = 7000; // the server says something every two seconds
const rest = 30000;  // a page that nobody sees lets go: browsers allow six connections to a server

// listen calls heard and the function of its name for each event, and silent with "lost" or "resting" when none come.
export function listen(on) {
  let source = null;
  let heard = 0;
  let hiding = 0;

  function open() {
    close();
    heard = performance.now();
    source = new EventSource("events");
    for (const name of ["snapshot", "look", "away", "tick"]) {
      source.addEventListener(name, (event) => {
        heard = performance.now();
        on.heard();
        on[name](JSON.parse(event.data));
      });
    }
    source.onerror = () => on.silent("lost");
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  setInterval(() => {
    if (document.hidden || !source) return;
    const since = performance.now() - heard;
    if (since > silent) on.silent("lost");
    if (source.readyState === EventSource.CLOSED || since > 2 * silent) open();
  }, 1000);

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) {
      hiding = setTimeout(() => { close(); on.silent("resting"); }, rest);
    } else if (!source) {
      open();
    }
  });

  open();
}
