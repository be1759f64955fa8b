import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import type { components } from "./schema";

export type HistoryPoint = components["schemas"]["HistoryPoint"];
export type History = components["schemas"]["HistoryView"];
export type Batch = components["schemas"]["BatchView"];

const EVERY_MS = 10_000;
const BATCHES_AT_ONCE = 50;
const EVENTS_AT_ONCE = 100;

/** Lag, log, throughput and waits of the last `hours`. It has a key of its own: events come faster than its steps. */
export const historyQuery = (name: string, hours: number) =>
  queryOptions({
    queryKey: ["history", name, hours],
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/subscriptions/{name}/history", { params: { path: { name }, query: { hours } }, signal })),
    refetchInterval: EVERY_MS,
    placeholderData: keepPreviousData,
  });

/** A page of batches, the newest first. `page`: empty for the first one. */
export const batchesQuery = (name: string, page: string) =>
  queryOptions({
    queryKey: ["subscription", name, "batches", page],
    queryFn: ({ signal }) => {
      const query = { page_size: BATCHES_AT_ONCE, ...(page === "" ? {} : { page_token: page }) };
      return answer(client.GET("/api/v1/subscriptions/{name}/batches", { params: { path: { name }, query }, signal }));
    },
    placeholderData: keepPreviousData,
  });

export const SEVERITIES = ["error", "warning", "info"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** A page of a subscription's events, the newest first; `only` those of one severity, or about one table (`schema.name`). */
export const eventPageQuery = (subscription: string, only: { severity?: Severity; subject?: string }, page: string) =>
  queryOptions({
    queryKey: ["events", "of", subscription, only, page],
    queryFn: ({ signal }) => {
      const query = { subscription, ...only, page_size: EVENTS_AT_ONCE, ...(page === "" ? {} : { page_token: page }) };
      return answer(client.GET("/api/v1/events", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
