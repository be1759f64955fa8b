import { queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import { parseExactly } from "./exactNumbers";
import { Problem } from "./problem";
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

const MEDIA_TYPES = {
  csv: "text/csv",
  json: "application/json",
  arrow: "application/vnd.apache.arrow.stream",
  parquet: "application/vnd.apache.parquet",
} as const;
export type DownloadFormat = keyof typeof MEDIA_TYPES;
/** Of a JSON answer; the others have all rows if they are not limited. */
const MOST_ROWS = 1_000_000;

interface DownloadedAnswer {
  file: Blob;
  position: string | null;
  /** In which way its rows are not what was asked for, in words. */
  notes: string[];
}

/** All rows of a query in a format. An answer that breaks off is a Problem: a part of one is never returned. */
export async function downloadAnswer(
  name: string,
  body: QueryRequest,
  format: DownloadFormat,
  signal: AbortSignal,
): Promise<DownloadedAnswer> {
  const call = client.POST("/api/v1/subscriptions/{name}/queries", {
    params: { path: { name }, header: { accept: MEDIA_TYPES[format] } },
    body: { ...body, max_rows: format === "json" ? MOST_ROWS : null },
    signal,
    parseAs: "blob",
  });
  let result: Awaited<typeof call>;
  try {
    result = await call;
  } catch (error) {
    if (signal.aborted) throw error;
    throw brokenOff();
  }
  const { response } = result;
  if (!response.ok || result.data === undefined) throw Problem.of(response, result.error);
  return { file: result.data, position: response.headers.get("Penstock-Position"), notes: notesOf(response.headers) };
}

function notesOf(headers: Headers): string[] {
  const notes: string[] = [];
  if (headers.get("Penstock-Ran-On") === "source") notes.push("it ran on the source");
  if (headers.get("Penstock-Truncated") === "true") notes.push("more rows exist");
  if (headers.get("Penstock-Stale") === "true") notes.push(`they are older than requested, by ${headers.get("Penstock-Seconds-Behind")} s`);
  const leftOut = headers.get("Penstock-Left-Out");
  if (leftOut !== null) notes.push(`rows of ${leftOut.split(",").map(decodeURIComponent).join(", ")} are older`);
  return notes;
}

const brokenOff = (): Problem =>
  new Problem({
    status: 0,
    code: "answer_broke_off",
    title: "The answer did not come completely",
    detail: "The server does not answer, or broke the answer off. No file was saved.",
    remedy: "Try again; give the query more time, or select less.",
  });

/** The columns of a table of the copy, as the target has them now. `version`: changes where they may have changed. */
export const columnsQuery = (name: string, table: string, version: string) =>
  queryOptions({
    queryKey: ["columns", name, table, version],
    queryFn: async ({ signal }) => {
      const body = { sql: `SELECT * FROM ${table} LIMIT 0`, freshness: { mode: "any", on_unavailable: "include" }, max_rows: 1 } as const;
      const { columns } = await runQuery(name, body, signal);
      return columns.map((column) => ({ name: column.name, type: column.target_type ?? column.type }));
    },
    refetchInterval: false,
    staleTime: 30_000,
  });

const GOALS_EVERY_MS = 10_000;

/** The freshness goals of a subscription and its tables; with the id of a table, the one that applies to it. */
export const freshnessGoalsQuery = (name: string, table_id: string | null) =>
  queryOptions({
    queryKey: ["freshness goals", name, table_id],
    queryFn: ({ signal }) => {
      const query = table_id === null ? {} : { table_id };
      return answer(client.GET("/api/v1/subscriptions/{name}/freshness-goals", { params: { path: { name }, query }, signal }));
    },
    refetchInterval: GOALS_EVERY_MS,
  });
