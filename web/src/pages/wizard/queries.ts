import { queryOptions } from "@tanstack/react-query";
import { answer, client, everyItem, LARGEST_PAGE, type QualifiedName, type SubscriptionPut, type TableBody } from "../../api/client";
import { Problem } from "../../api/problem";
import { keys, ON_REQUEST } from "../../api/queries";
import type { Role } from "../../labels/kinds";

export const sampleKey = ["sample-source"] as const;
const WHILE_STARTING_MS = 1_000;

export const sampleQuery = () =>
  queryOptions({
    queryKey: sampleKey,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/sample-source", { signal })),
    refetchInterval: (query) => (query.state.data?.state === "starting" ? WHILE_STARTING_MS : 10_000),
  });

/** A connection with its entity tag, which detects a change by another user. */
export const connectionQuery = (name: string) =>
  queryOptions({
    queryKey: [...keys.connections, name],
    queryFn: async ({ signal }) => {
      const call = client.GET("/api/v1/connections/{name}", { params: { path: { name } }, signal });
      const connection = await answer(call);
      return { connection, etag: (await call).response.headers.get("ETag") };
    },
  });

/** What the source has, with what would keep each table from being replicated. `capture`: the kind of capture; else the usual one. */
export const sourceTablesQuery = (name: string, capture = "") =>
  queryOptions({
    queryKey: ["source-tables", name, capture],
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(
          client.GET("/api/v1/connections/{name}/tables", {
            params: { path: { name }, query: { page_size: LARGEST_PAGE, page_token, ...(capture === "" ? {} : { capture }) } },
            signal,
          }),
        ),
      ),
    ...ON_REQUEST,
  });

interface ToCheck {
  connection: string;
  role: Role;
  tables: TableBody[];
  /** Of the subscription, for the source. */
  capture?: SubscriptionPut["capture"];
}

/** What prevents the replication of these tables at one end. */
export const checksQuery = ({ connection, role, tables, capture }: ToCheck) =>
  queryOptions({
    queryKey: ["checks", connection, role, capture, tables],
    queryFn: ({ signal }) =>
      answer(
        client.POST("/api/v1/connections/{name}/checks", {
          params: { path: { name: connection } },
          body: { role, tables, ...(role === "source" && capture !== undefined ? { capture } : {}) },
          signal,
        }),
      ),
    ...ON_REQUEST,
    staleTime: 0,
    gcTime: 0,
  });

export const ddlCaptureQuery = (name: string) =>
  queryOptions({
    queryKey: ["ddl-capture", name],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/connections/{name}/ddl-capture", { params: { path: { name } }, signal })),
    ...ON_REQUEST,
  });

const CHANGE_TRIGGERS = "change-triggers";

/** The triggers that record a source's changes. */
export const changeTriggersQuery = (name: string) =>
  queryOptions({
    queryKey: [CHANGE_TRIGGERS, name],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/connections/{name}/change-triggers", { params: { path: { name } }, signal })),
    ...ON_REQUEST,
  });

/** What installing triggers on these tables would run. */
export const changeTriggersPlanQuery = (name: string, tables: QualifiedName[]) =>
  queryOptions({
    queryKey: [CHANGE_TRIGGERS, name, "plan", tables],
    queryFn: ({ signal }) =>
      answer(client.POST("/api/v1/connections/{name}/change-triggers/plans", { params: { path: { name } }, body: { tables }, signal })),
    ...ON_REQUEST,
    staleTime: 0,
    gcTime: 0,
  });

/** A refusal because of another's change or name, in words for people. */
export function collided(error: unknown, detail: string, remedy: string): Problem {
  const problem = Problem.from(error);
  if (problem.status !== 412) return problem;
  const { status, code, title, traceId } = problem;
  return new Problem({ status, code, title, detail, remedy, ...(traceId === undefined ? {} : { traceId }) });
}
