// Shows what runs. Everything from the server is put in as text, never as markup.
const API = "/api/v1";
const KEY = "penstock-token";
const GOOD = new Set(["running", "live"]);
const BAD = new Set(["failed", "parked", "error"]);
const at = (id) => document.getElementById(id);

// A link that signs in has the token behind the address, where it does not stay.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given !== null) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

class Refused extends Error {
  constructor(problem) {
    super(`${problem.title}: ${problem.detail} ${problem.remedy}`);
    this.status = problem.status;
  }
}

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

async function get(path) {
  const answer = await fetch(API + path, { headers: headers() });
  const body = await answer.json();
  if (!answer.ok) throw new Refused(body);
  return body;
}

async function all(path) {
  const items = [];
  let token = null;
  do {
    const query = new URLSearchParams({ page_size: "1000", ...(token ? { page_token: token } : {}) });
    const page = await get(`${path}?${query}`);
    items.push(...page.items);
    token = page.next_page_token;
  } while (token);
  return items;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// A cell of a table's body; where there is no room for columns, it is shown under the name of its own.
function cell(column, text, kind) {
  const made = element("td", text, kind);
  made.dataset.column = column;
  return made;
}

const kindOf = (state) => (BAD.has(state) ? "bad" : GOOD.has(state) ? "good" : "busy");

function seconds(value) {
  if (value === null) return "–";
  if (value < 120) return `${value.toFixed(1)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`;
}

function bytes(value) {
  if (value === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

function subscriptionRow(item) {
  const row = element("tr");
  const state = cell("State", undefined, "text");
  state.append(element("span", item.state, kindOf(item.state)));
  if (item.desired_state !== item.state) state.append(element("small", `wanted: ${item.desired_state}`));
  if (item.reason) state.append(element("small", item.reason));
  if (item.remedy) state.append(element("small", item.remedy));
  const tables = cell("Tables", undefined, "short");
  for (const [name, count] of Object.entries(item.table_states)) {
    if (tables.hasChildNodes()) tables.append(", ");
    tables.append(element("span", `${count} ${name}`, kindOf(name)));
  }
  row.append(
    element("th", item.name),
    cell("From → to", `${item.source} → ${item.target}`),
    state,
    cell("Lag", seconds(item.lag.seconds), "short"),
    cell("Behind", bytes(item.lag.bytes), "short"),
    cell("Applied", item.positions.applied ?? "–", "short"),
    tables,
  );
  row.firstChild.scope = "row";
  return row;
}

function eventRow(item) {
  const row = element("tr");
  const what = element("td", item.detail, "text");
  if (item.remedy) what.append(element("small", item.remedy));
  const kind = item.severity === "info" ? "" : item.severity === "error" ? "bad" : "busy";
  row.append(
    element("td", new Date(item.at).toLocaleString(), "short"),
    element("td", item.severity, kind),
    element("td", item.subscription ?? "–"),
    what,
  );
  return row;
}

function nothing(columns, text) {
  const row = element("tr");
  const cell = element("td", text);
  cell.colSpan = columns;
  row.append(cell);
  return row;
}

async function showHealth() {
  const answer = await fetch("/readyz");
  const body = await answer.json();
  const lines = [element("li", "The server answers.", "good")];
  for (const error of body.errors ?? []) lines.push(element("li", error.detail, "bad"));
  if (answer.ok) lines.push(element("li", "An engine is connected.", "good"));
  at("health").replaceChildren(...lines);
}

async function show() {
  const [subscriptions, events] = await Promise.all([all("/subscriptions"), get("/events?page_size=20"), showHealth()]);
  at("subscriptions").replaceChildren(
    ...(subscriptions.length ? subscriptions.map(subscriptionRow) : [nothing(7, "There is none yet.")]),
  );
  at("events").replaceChildren(
    ...(events.items.length ? events.items.map(eventRow) : [nothing(4, "Nothing has happened yet.")]),
  );
  at("status").hidden = false;
  at("enter").hidden = true;
  at("problem").hidden = true;
  at("forget").hidden = !sessionStorage.getItem(KEY);
}

function live(text) {
  at("live").textContent = text;
}

function refused(error) {
  const unknown = error.status === 401;
  at("enter").hidden = !unknown;
  at("status").hidden = unknown;
  at("problem").textContent = error.message;
  at("problem").hidden = unknown && !sessionStorage.getItem(KEY);
  if (unknown) sessionStorage.removeItem(KEY);
  return unknown;
}

let queued = false;
function showSoon() {
  if (queued) return;
  queued = true;
  setTimeout(async () => {
    queued = false;
    try {
      await show();
      live(`live · ${new Date().toLocaleTimeString()}`);
    } catch (error) {
      refused(error);
    }
  }, 1000);
}

// EventSource cannot send the token, so the stream is read by hand; its content only says that something is new.
async function watch(signal) {
  const answer = await fetch(`${API}/events/stream`, { headers: headers(), signal });
  if (!answer.ok) throw new Refused(await answer.json());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (/^event:/m.test(value)) showSoon();
  }
}

let running = null;
async function run() {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  while (!controller.signal.aborted) {
    try {
      await show();
      live("live");
      await watch(controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return;
      if (refused(error)) {
        live("not connected");
        return;
      }
    }
    live("reconnecting …");
    await new Promise((wake) => setTimeout(wake, 3000));
  }
}

// Ages grow and engines vanish without a commit that would tell of it.
setInterval(() => {
  if (!at("status").hidden && !document.hidden) showSoon();
}, 10000);

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  run();
});
at("forget").addEventListener("click", () => {
  running?.abort();
  sessionStorage.removeItem(KEY);
  location.reload();
});
run();
