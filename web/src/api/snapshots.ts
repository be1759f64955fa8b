import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, client } from "./client";
import { Problem } from "./problem";
import { keys } from "./queries";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Snapshot = Schemas["SnapshotView"];
export type SnapshotFormat = Schemas["SnapshotFormat"];
export type SnapshotRequest = Schemas["SnapshotRequest"];
export type SnapshotSchedule = Schemas["SnapshotSchedule"];
export type SnapshotScheduleView = Schemas["SnapshotScheduleView"];

const AT_ONCE = 20;
const WHILE_WRITING_MS = 1_000;

/** It is being written, or its files are being deleted; not where they could not be. */
const isUnderWay = ({ ended_at, deleting, problem }: Snapshot): boolean => ended_at === null || (deleting && problem === null);

/** A page of snapshots, the newest first, read often while one of them changes. `page`: empty for the first one. */
export const snapshotsQuery = (name: string, page: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "snapshots", page],
    queryFn: ({ signal }) => {
      const query = { page_size: AT_ONCE, ...(page === "" ? {} : { page_token: page }) };
      return answer(client.GET("/api/v1/subscriptions/{name}/snapshots", { params: { path: { name }, query }, signal }));
    },
    refetchInterval: (query) => (query.state.data?.items.some(isUnderWay) ? WHILE_WRITING_MS : 15_000),
    placeholderData: keepPreviousData,
  });

/** The schedule of snapshots; null if there is none. */
export const snapshotScheduleQuery = (name: string) =>
  queryOptions({
    queryKey: [...keys.ofSubscription(name), "snapshot schedule"],
    queryFn: async ({ signal }): Promise<SnapshotScheduleView | null> => {
      try {
        return await answer(client.GET("/api/v1/subscriptions/{name}/snapshot-schedule", { params: { path: { name } }, signal }));
      } catch (error) {
        if (Problem.from(error).status === 404) return null;
        throw error;
      }
    },
  });

/** Returns when the snapshot has been requested, after the wait that it asks for. */
export const takeSnapshot = (name: string, body: SnapshotRequest, signal: AbortSignal): Promise<Snapshot> =>
  answer(client.POST("/api/v1/subscriptions/{name}/snapshots", { params: { path: { name } }, body, signal }));

/** Deletes one with its files, or cancels it. */
export const deleteSnapshot = (name: string, snapshot_id: string): Promise<unknown> =>
  answer(client.DELETE("/api/v1/subscriptions/{name}/snapshots/{snapshot_id}", { params: { path: { name, snapshot_id } } }));

export const storeSchedule = (name: string, body: SnapshotSchedule): Promise<SnapshotScheduleView> =>
  answer(client.PUT("/api/v1/subscriptions/{name}/snapshot-schedule", { params: { path: { name } }, body }));

export const removeSchedule = (name: string): Promise<unknown> =>
  answer(client.DELETE("/api/v1/subscriptions/{name}/snapshot-schedule", { params: { path: { name } } }));
