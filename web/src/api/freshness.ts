import { queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import { parseExactly } from "./exactNumbers";
import { keys } from "./queries";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Receipt = Schemas["Receipt"];
export type WaitRequest = Schemas["WaitRequest"];
export type QueryRequest = Schemas["QueryRequest"];
export type QueryAnswer = Schemas["QueryAnswer"];

/** Read more often than the rest: it is what the page is about. */
const EVERY_MS = 2_000;

/** The positions and the lag of a subscription. */
export const freshnessQuery = (name: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "freshness"],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/subscriptions/{name}/freshness", { params: { path: { name } }, signal })),
    refetchInterval: EVERY_MS,
  });

/** A wait that was satisfied. `askedAt` is by the server's clock; null where the server has forgotten it. */
export interface Waited {
  id: string;
  waitedMs: number;
  askedAt: string | null;
  receipt: Receipt;
}

/** Ends with the wait; raises its Problem where it ends badly. */
export async function waitFor(name: string, body: WaitRequest, signal: AbortSignal): Promise<Waited> {
  const ended = await answer(client.POST("/api/v1/subscriptions/{name}/freshness-waits", { params: { path: { name } }, body, signal }));
  if (ended.receipt == null || ended.waited_ms === null) throw new Error("The server ended the wait without a receipt.");
  return { id: ended.id, waitedMs: ended.waited_ms, askedAt: await askedAt(name, ended.id, signal), receipt: ended.receipt };
}

async function askedAt(name: string, wait_id: string, signal: AbortSignal): Promise<string | null> {
  const { data } = await client.GET("/api/v1/subscriptions/{name}/freshness-waits/{wait_id}", {
    params: { path: { name, wait_id } },
    signal,
  });
  return data?.created_at ?? null;
}

/** Values of its rows may be bigints: no digit is lost. */
export async function runQuery(name: string, body: QueryRequest, signal: AbortSignal): Promise<QueryAnswer> {
  const text = await answer(
    client.POST("/api/v1/subscriptions/{name}/queries", {
      params: { path: { name }, header: { accept: "application/json" } },
      body,
      signal,
      parseAs: "text",
    }),
  );
  return parseExactly(text) as QueryAnswer;
}
