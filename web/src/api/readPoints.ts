import { queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type ReadPoint = Schemas["ReadPointView"];
export type ReadPointRequest = Schemas["ReadPointRequest"];

const EVERY_MS = 10_000;

/** By name, those that ended recently too. The engine is asked for them: at intervals, not with every event of the subscription. */
export const readPointsQuery = (name: string) =>
  queryOptions({
    queryKey: ["read points", name],
    queryFn: async ({ signal }) =>
      (await answer(client.GET("/api/v1/subscriptions/{name}/read-points", { params: { path: { name } }, signal }))).items,
    refetchInterval: EVERY_MS,
  });

export const createReadPoint = (name: string, body: ReadPointRequest, signal: AbortSignal): Promise<ReadPoint> =>
  answer(client.POST("/api/v1/subscriptions/{name}/read-points", { params: { path: { name } }, body, signal }));

export const releaseReadPoint = (name: string, read_point: string): Promise<unknown> =>
  answer(client.DELETE("/api/v1/subscriptions/{name}/read-points/{read_point}", { params: { path: { name, read_point } } }));
