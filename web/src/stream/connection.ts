import { noteServerTime } from "../clock";
import { bearer, refuse } from "../session";
import { Store } from "../store";
import { EventStreamParser, type StreamMessage } from "./eventStream";

const ADDRESS = "/api/v1/events/stream";
const PAUSE_FIRST_MS = 1_000;
const PAUSE_MOST_MS = 30_000;
/** The server says something every 15 s; after this, the line counts as dead. */
const SILENCE_MS = 40_000;

export type Link = "connecting" | "live" | "reconnecting";

/** How the tab's one stream is. */
export const link = new Store<Link>("connecting");

interface Listener {
  onMessage: (message: StreamMessage) => void;
  /** The stream is open, again or for the first time; it does not report what happened before. */
  onOpen: () => void;
}

/** Keeps one stream of the server's events open until the returned function is called. EventSource would do, but it sends no token. */
export function keepConnected(token: string | null, listener: Listener): () => void {
  const end = new AbortController();
  void run(token, listener, end.signal);
  return () => end.abort();
}

async function run(token: string | null, listener: Listener, end: AbortSignal): Promise<void> {
  let lastId: string | null = null;
  let pause = PAUSE_FIRST_MS;
  link.set("connecting");
  while (!end.aborted) {
    const refused = await attempt(token, lastId, end, {
      onOpen: () => {
        pause = PAUSE_FIRST_MS;
        link.set("live");
        listener.onOpen();
      },
      onMessage: (message) => {
        lastId = message.id ?? lastId;
        listener.onMessage(message);
      },
    });
    if (end.aborted || refused) return;
    link.set("reconnecting");
    await rest(pause * (0.75 + Math.random() / 2), end);
    pause = Math.min(pause * 2, PAUSE_MOST_MS);
  }
}

/** One connection, until it ends, is silent for too long or is ended. Returns whether the server refused the token. */
async function attempt(token: string | null, lastId: string | null, end: AbortSignal, listener: Listener): Promise<boolean> {
  const silent = new AbortController();
  let timer = 0;
  const heard = (): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => silent.abort(), SILENCE_MS);
  };
  heard();
  try {
    const response = await fetch(ADDRESS, {
      headers: { ...bearer(token), ...(lastId === null ? {} : { "Last-Event-ID": lastId }) },
      signal: AbortSignal.any([end, silent.signal]),
      cache: "no-store",
    });
    noteServerTime(response);
    if (response.status === 401) {
      refuse(token);
      return true;
    }
    if (!response.ok || response.body === null) return false;
    listener.onOpen();
    await read(response.body, heard, listener);
  } catch {
    // Whatever broke it, another attempt follows.
  } finally {
    clearTimeout(timer);
  }
  return false;
}

async function read(body: ReadableStream<Uint8Array>, heard: () => void, listener: Listener): Promise<void> {
  const parser = new EventStreamParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    for (const message of parser.push(decoder.decode(value, { stream: true }))) listener.onMessage(message);
  }
}

/** Waits; a network that comes back or a tab that is looked at again ends it early. */
function rest(ms: number, end: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = new AbortController();
    const wake = (): void => {
      clearTimeout(timer);
      done.abort();
      resolve();
    };
    const timer = setTimeout(wake, ms);
    const options = { signal: done.signal };
    end.addEventListener("abort", wake, options);
    window.addEventListener("online", wake, options);
    document.addEventListener("visibilitychange", () => !document.hidden && wake(), options);
  });
}
