import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Cycle = Schemas["CycleView"];
export type CycleTable = Schemas["CycleTableView"];
export type CyclePage = Schemas["CyclePage"];

const AT_ONCE = 20;
const WHILE_UNDER_WAY_MS = 1_000;
const OTHERWISE_MS = 10_000;

/** Every one under a key of its own, and all of a subscription together. */
export const cyclesKey = (name: string) => ["cycles", name] as const;

/** A page of cycles, the newest first. `page`: empty for the first one. The engine is asked for them: at intervals, not with every event. */
export const cyclesQuery = (name: string, page: string) =>
  queryOptions({
    queryKey: [...cyclesKey(name), page],
    queryFn: ({ signal }): Promise<CyclePage> => {
      const query = { page_size: AT_ONCE, ...(page === "" ? {} : { page_token: page }) };
      return answer(client.GET("/api/v1/subscriptions/{name}/cycles", { params: { path: { name }, query }, signal }));
    },
    refetchInterval: ({ state }) =>
      state.data?.items.some(({ state: each }) => each !== "applied" && each !== "failed") ? WHILE_UNDER_WAY_MS : OTHERWISE_MS,
    placeholderData: keepPreviousData,
  });

export const beginCycle = (name: string): Promise<Schemas["CycleRequestedView"]> =>
  answer(client.POST("/api/v1/subscriptions/{name}/cycles", { params: { path: { name } } }));
