import { Handover } from "./handover";
import { keep, recall } from "./storage";
import { Store } from "./store";

const KEY = "penstock-token";
/** A mark that each sign-out changes. It is no secret; the local storage has it, so that also tabs that the browser had put away see it. */
const SIGN_OUTS = "penstock-sign-outs";
const PATIENCE_MS = 200;

export interface Session {
  token: string | null;
  /** The server wants a token, and there is none or it is not taken. */
  refused: boolean;
  /** What was given last is not taken. */
  wrong: boolean;
}

const signOuts = (): string => recall("local", SIGN_OUTS) ?? "";

/** Whether the user has signed out since the token of this tab was given. */
const isPast = (): boolean => (recall("session", SIGN_OUTS) ?? "") !== signOuts();

function keepToken(token: string | null): void {
  keep("session", KEY, token);
  keep("session", SIGN_OUTS, token === null ? null : signOuts());
}

/** The token of a link that signs in. It leaves the address, and with it the browser's history, before anything else is done. */
function tokenOfLink(): string | null {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  keepToken(token);
  return token;
}

function keptToken(): string | null {
  if (isPast()) keepToken(null);
  return recall("session", KEY);
}

/** The token lives in the tabs of the browser, and is forgotten with the last of them. */
export const session = new Store<Session>({ token: tokenOfLink() ?? keptToken(), refused: false, wrong: false });

let asking = false;
const handover = new Handover(typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("penstock-session"), {
  token: () => (session.get().refused || isPast() ? null : session.get().token),
  signOuts,
  take: (token, given) => {
    const { token: present, refused } = session.get();
    if (present === null && (asking || refused) && given === signOuts()) begin(token);
  },
  end: endElsewhere,
});

// The others may show the page that asks for a token.
handover.offer();

// Such a link was followed in a tab where the console is open already.
addEventListener("hashchange", () => {
  const token = tokenOfLink();
  if (token !== null) signIn(token);
});

addEventListener("storage", ({ key }) => {
  if (key === SIGN_OUTS) endElsewhere();
});

/** Takes the token over from another tab, where this one has none; returns when it is known whether there is one. */
export async function askOtherTabs(): Promise<void> {
  if (session.get().token !== null) return;
  asking = true;
  await handover.ask(new Promise((resolve) => setTimeout(resolve, PATIENCE_MS)));
  asking = false;
}

export function signIn(token: string): void {
  begin(token);
  handover.offer();
}

/** In all tabs of the browser. */
export function signOut(): void {
  keep("local", SIGN_OUTS, `${Date.now()}-${Math.random()}`);
  end(false);
  handover.signOut();
}

/** The server answered 401 to a request that carried `token`; an answer to an earlier token says nothing of the present one. */
export function refuse(token: string | null): void {
  const present = session.get();
  if (token === present.token && !present.refused) end(token !== null);
}

function begin(token: string): void {
  keepToken(token);
  session.set({ token, refused: false, wrong: false });
}

function endElsewhere(): void {
  if (session.get().token !== null) end(false);
}

function end(wrong: boolean): void {
  keepToken(null);
  session.set({ token: null, refused: true, wrong });
}

export const bearer = (token: string | null): Record<string, string> => (token === null ? {} : { Authorization: `Bearer ${token}` });
