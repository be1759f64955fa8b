import type { QueryKey } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Event } from "../api/client";
import { keys } from "../api/queries";
import { session } from "../session";
import { useStore } from "../store";
import { keepConnected } from "./connection";
import type { StreamMessage } from "./eventStream";
import { queryClient } from "./queryClient";

/** A busy subscription reports four times a second; people read slower, and each renewal costs requests. */
const GATHER_MS = 1_000;

/**
 * Gathers what is to be read again, and has it read: a second after the first news, not before the reading before has ended (a slow
 * server gets fewer of them), and not while nobody looks.
 */
class Renewals {
  #waiting = new Map<string, QueryKey>();
  #busy = false;

  add(...found: QueryKey[]): void {
    for (const key of found) this.#waiting.set(JSON.stringify(key), key);
    if (this.#waiting.size > 0) this.#begin();
  }

  #begin(): void {
    if (this.#busy) return;
    this.#busy = true;
    setTimeout(() => void this.#renew(), GATHER_MS);
  }

  async #renew(): Promise<void> {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    const found = [...this.#waiting.values()];
    this.#waiting.clear();
    await Promise.all(found.map((queryKey) => queryClient.invalidateQueries({ queryKey })));
    this.#busy = false;
    if (this.#waiting.size > 0) this.#begin();
  }
}

const renewals = new Renewals();

/** What a message of the stream makes out of date. A kind that is not known here makes nothing out of date. */
export function queriesInvalidatedBy(message: StreamMessage): QueryKey[] {
  let body: Partial<Event>;
  try {
    body = JSON.parse(message.data) as Partial<Event>;
  } catch {
    return [];
  }
  const found: QueryKey[] = [];
  if (typeof body.subscription === "string") found.push(keys.subscriptions, keys.ofSubscription(body.subscription));
  // That an engine went is told as a change of its subscriptions.
  if (message.event === "changed") found.push(keys.readiness);
  if (message.event === "event") {
    found.push(keys.events);
    if (body.kind?.startsWith("connection_")) found.push(keys.connections);
    if (body.kind?.startsWith("engine_")) found.push(keys.readiness, keys.subscriptions);
  }
  return found;
}

/** Follows the server's news while the session lasts. */
export function useEventStream(): void {
  const { token, refused } = useStore(session);
  useEffect(() => {
    if (refused) return undefined;
    return keepConnected(token, {
      onOpen: () => void queryClient.invalidateQueries(),
      onMessage: (message) => renewals.add(...queriesInvalidatedBy(message)),
    });
  }, [token, refused]);
}
