import { useQuery } from "@tanstack/react-query";
import { readinessQuery } from "./api/queries";

/** Whether the server says that no engine is connected: what it tells of subscriptions and tables is from before then. */
export function useEngineAway(): boolean {
  const readiness = useQuery(readinessQuery());
  return readiness.data?.some(({ pointer }) => pointer === "/engine") ?? false;
}
