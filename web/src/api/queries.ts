import { queryOptions } from "@tanstack/react-query";
import type { Event, Table, Verification } from "./client";
import { answer, client, everyItem, LARGEST_PAGE } from "./client";

/** Keys of cached queries. All of one subscription begin with `ofSubscription`, so that an event invalidates them together. */
export const keys = {
  subscriptions: ["subscriptions"] as const,
  ofSubscription: (name: string) => ["subscription", name] as const,
  connections: ["connections"] as const,
  connectionKinds: ["connection kinds"] as const,
  events: ["events"] as const,
  alertChannels: ["alert channels"] as const,
  tokens: ["tokens"] as const,
  readiness: ["readiness"] as const,
  caller: ["caller"] as const,
};

/** For what the engine asks a database for: it is read when a person wants it, not at intervals. */
export const ON_REQUEST = { refetchInterval: false, staleTime: Infinity, retry: false, refetchOnWindowFocus: false } as const;

/** As many of the newest events as are looked at across subscriptions. */
const EVENTS_AT_ONCE = 200;

export const subscriptionsQuery = () =>
  queryOptions({
    queryKey: keys.subscriptions,
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(client.GET("/api/v1/subscriptions", { params: { query: { page_size: LARGEST_PAGE, page_token } }, signal })),
      ),
  });

export const subscriptionQuery = (name: string) =>
  queryOptions({
    queryKey: keys.ofSubscription(name),
    queryFn: ({ signal }) => answer(client.GET("/api/v1/subscriptions/{name}", { params: { path: { name } }, signal })),
  });

/** The tables that are replicated, or those that were removed, which the API lists apart. */
export const tablesQuery = (name: string, removed: boolean) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "tables", removed ? "removed" : "present"],
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(
          client.GET("/api/v1/subscriptions/{name}/tables", {
            params: {
              path: { name },
              query: { page_size: LARGEST_PAGE, page_token, ...(removed ? { state: "removed" as const } : {}) },
            },
            signal,
          }),
        ),
      ),
  });

/** The nodes of the source; none if it is one database. */
export const nodesQuery = (name: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "nodes"],
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(
          client.GET("/api/v1/subscriptions/{name}/nodes", {
            params: { path: { name }, query: { page_size: LARGEST_PAGE, page_token } },
            signal,
          }),
        ),
      ),
  });

export const tableQuery = (name: string, table_id: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "table", table_id],
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/subscriptions/{name}/tables/{table_id}", { params: { path: { name, table_id } }, signal })),
  });

export const versionsQuery = (name: string, table_id: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "table", table_id, "versions"],
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(
          client.GET("/api/v1/subscriptions/{name}/tables/{table_id}/versions", {
            params: { path: { name, table_id }, query: { page_size: LARGEST_PAGE, page_token } },
            signal,
          }),
        ),
      ),
  });

export const tableReloadsQuery = (name: string, table_id: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "table", table_id, "reloads"],
    queryFn: async ({ signal }) => {
      const page = await answer(
        client.GET("/api/v1/subscriptions/{name}/tables/{table_id}/reloads", {
          params: { path: { name, table_id }, query: { page_size: 10 } },
          signal,
        }),
      );
      return page.items;
    },
  });

/** The engine asks the source for these: they are read on request. */
export const partitionsQuery = (name: string, table_id: string) =>
  queryOptions({
    queryKey: ["partitions", name, table_id],
    queryFn: async ({ signal }) => {
      const path = { name, table_id };
      return (await answer(client.GET("/api/v1/subscriptions/{name}/tables/{table_id}/partitions", { params: { path }, signal })))
        .partitions;
    },
    ...ON_REQUEST,
  });

/** The engine measures when it is asked. */
export const lagExplanationQuery = (name: string) =>
  queryOptions({
    queryKey: ["lag explanation", name],
    queryFn: ({ signal }) => answer(client.GET("/api/v1/subscriptions/{name}/lag/explanation", { params: { path: { name } }, signal })),
    ...ON_REQUEST,
  });

export const VERIFICATIONS_AT_ONCE = 20;
const WHILE_VERIFYING_MS = 1_000;

/** The newest verifications, of users or of the schedule (null: of both); read often while one of them is under way. */
export const verificationsQuery = (name: string, trigger: Verification["trigger"] | null = null) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "verifications", trigger],
    queryFn: ({ signal }) =>
      answer(
        client.GET("/api/v1/subscriptions/{name}/verifications", {
          params: { path: { name }, query: { page_size: VERIFICATIONS_AT_ONCE, ...(trigger === null ? {} : { trigger }) } },
          signal,
        }),
      ),
    refetchInterval: (query) => (query.state.data?.items.some(({ ended_at }) => ended_at === null) ? WHILE_VERIFYING_MS : 15_000),
  });

export const REFUSED_AT_ONCE = 100;

/** The engine reads them from the target: again when the table shows that they changed, not with every event of its subscription. */
export const refusedRowsQuery = (name: string, { id, state_since, rows_set_aside }: Table) =>
  queryOptions({
    queryKey: ["refused rows", name, id, state_since, rows_set_aside],
    queryFn: ({ signal }) =>
      answer(
        client.GET("/api/v1/subscriptions/{name}/tables/{table_id}/refused-rows", {
          params: { path: { name, table_id: id }, query: { page_size: REFUSED_AT_ONCE } },
          signal,
        }),
      ),
    refetchInterval: false,
  });

/** The newest events: of one subscription, or of all of one severity. */
export const eventsQuery = (only: { subscription?: string; severity?: Event["severity"] }) =>
  queryOptions({
    queryKey: [...keys.events, only],
    queryFn: async ({ signal }) => {
      const query = { ...only, page_size: only.subscription === undefined ? EVENTS_AT_ONCE : 20 };
      return (await answer(client.GET("/api/v1/events", { params: { query }, signal }))).items;
    },
  });

export const connectionsQuery = () =>
  queryOptions({
    queryKey: keys.connections,
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(client.GET("/api/v1/connections", { params: { query: { page_size: LARGEST_PAGE, page_token } }, signal })),
      ),
  });

/** What can be connected; the same for as long as the server is of one release. */
export const connectionKindsQuery = () =>
  queryOptions({
    queryKey: keys.connectionKinds,
    queryFn: async ({ signal }) => (await answer(client.GET("/api/v1/connection-kinds", { signal }))).items,
    refetchInterval: false,
    staleTime: Number.POSITIVE_INFINITY,
  });

/** What keeps the server from doing its work, and which part of it that is; empty when it is ready. */
export const readinessQuery = () =>
  queryOptions({
    queryKey: keys.readiness,
    queryFn: async ({ signal }): Promise<{ pointer: string; detail: string }[]> => {
      const { error, response } = await client.GET("/readyz", { signal });
      if (response.ok) return [];
      const found = error?.errors ?? [];
      return found.length > 0 ? found : [{ pointer: "", detail: error?.detail ?? "The server is not ready." }];
    },
  });

/** Whose token the requests carry; another token opens another stream, which has all read again. */
export const callerQuery = () =>
  queryOptions({
    queryKey: keys.caller,
    queryFn: ({ signal }) => answer(client.GET("/api/v1/caller", { signal })),
    refetchInterval: false,
  });
