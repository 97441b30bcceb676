// Talks to holter serve: asks it, changes what may be changed, and listens for news through sleep and lost connections.

const SILENT_MS = 40_000; // the server sends a beat every 15 s: after so long nothing is heard any more
const CONNECTS_MS = 10_000;
const LOOKS_EVERY_MS = 5_000;

// What went wrong, in words for the reader.
export class Told extends Error {}

const NO_TOKEN = "The token is no longer good: open the address that holter serve printed.";

async function asked(path, options = {}) {
  const answer = await fetch(path, { credentials: "same-origin", ...options }).catch(() => {
    throw new Told("There is no connection to holter serve.");
  });
  if (answer.ok) return answer.json();
  if (answer.status === 403) throw new Told(NO_TOKEN);
  throw new Told((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
}

export const get = (path) => asked(path);

// The header is what no page of another server can send along with the cookie.
export const change = (method, path, said = {}) =>
  asked(path, {
    method,
    headers: { "Holter-Change": "1", "Content-Type": "application/json" },
    body: JSON.stringify(said),
  });

export const of = (run) => `/api/run/${encodeURIComponent(run)}`;

// Listens until it is closed. The browser takes up again a connection that breaks, but not one that the server refused, and
// one that went silent while the machine slept looks open for ever: both are noticed here, and opened anew. What was missed
// is asked for by opened(), until that has come: it may have been sent over a connection that was dead, too.
export function listen(path, { state, opened = () => {}, ...news }) {
  let source = null;
  let heard = Date.now();
  let missed = false;
  let asked = 0;
  const ask = async () => {
    missed = true;
    asked = Date.now();
    try {
      await opened();
      missed = false;
    } catch (error) {
      state(error.message);
    }
  };
  const open = () => {
    source?.close();
    source = new EventSource(path);
    heard = Date.now();
    const hears = (act) => (event) => {
      heard = Date.now();
      act(event.data);
    };
    source.onopen = hears(() => {
      state("live");
      ask();
    });
    source.onerror = async () => {
      state("no connection to holter serve");
      if (source.readyState !== EventSource.CLOSED) return;
      const answer = await fetch("/", { method: "HEAD", credentials: "same-origin" }).catch(() => null);
      if (answer?.status === 403) state(NO_TOKEN);
    };
    source.addEventListener(
      "beat",
      hears(() => {}),
    );
    for (const [kind, act] of Object.entries(news)) source.addEventListener(kind, hears(act));
  };
  const look = () => {
    const patience = source.readyState === EventSource.OPEN ? SILENT_MS : CONNECTS_MS;
    if (source.readyState === EventSource.CLOSED || Date.now() - heard > patience) open();
    else if (missed && source.readyState === EventSource.OPEN && Date.now() - asked > CONNECTS_MS) ask();
  };
  const shown = () => {
    if (!document.hidden) look();
  };
  open();
  const timer = setInterval(look, LOOKS_EVERY_MS);
  for (const kind of ["online", "pageshow", "focus"]) addEventListener(kind, look);
  document.addEventListener("visibilitychange", shown);
  return () => {
    source.close();
    clearInterval(timer);
    for (const kind of ["online", "pageshow", "focus"]) removeEventListener(kind, look);
    document.removeEventListener("visibilitychange", shown);
  };
}
