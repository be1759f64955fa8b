import type { QueryKey } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Event } from "../api/client";
import { keys } from "../api/queries";
import { session } from "../session";
import { useStore } from "../store";
import { keepConnected } from "./connection";
import type { StreamMessage } from "./eventStream";
import { queryClient } from "./queryClient";

/** A busy subscription reports four times a second; people read more slowly, and each read costs requests. */
const GATHER_MS = 1_000;

/**
 * Gathers keys and invalidates their queries together: a second after the first one, not before the reads of the last time have ended
 * (a slow server gets fewer of them), and not while the tab is hidden.
 */
class InvalidationQueue {
  #waiting = new Map<string, QueryKey>();
  #busy = false;

  add(...found: QueryKey[]): void {
    for (const key of found) this.#waiting.set(JSON.stringify(key), key);
    if (this.#waiting.size > 0) this.#begin();
  }

  #begin(): void {
    if (this.#busy) return;
    this.#busy = true;
    setTimeout(() => void this.#flush(), GATHER_MS);
  }

  async #flush(): Promise<void> {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    const found = [...this.#waiting.values()];
    this.#waiting.clear();
    await Promise.all(found.map((queryKey) => queryClient.invalidateQueries({ queryKey })));
    this.#busy = false;
    if (this.#waiting.size > 0) this.#begin();
  }
}

const invalidations = new InvalidationQueue();

/** Keys of the queries that a message of the stream makes out of date; none for kinds that are not known here. */
export function queriesInvalidatedBy(message: StreamMessage): QueryKey[] {
  let body: Partial<Event>;
  try {
    body = JSON.parse(message.data) as Partial<Event>;
  } catch {
    return [];
  }
  const found: QueryKey[] = [];
  if (typeof body.subscription === "string") found.push(keys.subscriptions, keys.ofSubscription(body.subscription));
  // The loss of an engine is reported as a change of its subscriptions.
  if (message.event === "changed") found.push(keys.readiness);
  if (message.event === "event") {
    found.push(keys.events);
    if (body.kind?.startsWith("connection_")) found.push(keys.connections);
    if (body.kind?.startsWith("alert_")) found.push(keys.alertChannels);
    if (body.kind?.startsWith("engine_")) found.push(keys.readiness, keys.subscriptions);
  }
  return found;
}

/** Follows the server's events while the session lasts. */
export function useEventStream(): void {
  const { token, refused } = useStore(session);
  useEffect(() => {
    if (refused) return undefined;
    return keepConnected(token, {
      onOpen: () => void queryClient.invalidateQueries(),
      onMessage: (message) => invalidations.add(...queriesInvalidatedBy(message)),
    });
  }, [token, refused]);
}
