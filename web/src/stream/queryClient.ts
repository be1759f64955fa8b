import { QueryClient } from "@tanstack/react-query";
import { Problem } from "../api/problem";
import { Store } from "../store";
import { link } from "./connection";

/** Ages grow and engines vanish without an event, so what is on screen is read again at times even while the stream is open. */
const WHILE_LIVE_MS = 15_000;
const WITHOUT_STREAM_MS = 5_000;

/** When something was last read from the server, in ms; null before that. */
export const readAt = new Store<number | null>(null);

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // Only what is on screen is read at intervals; what an event invalidates is read again when it is shown again.
      refetchInterval: () => (link.get() === "live" ? WHILE_LIVE_MS : WITHOUT_STREAM_MS),
      staleTime: 1_000,
      retry: (failures, error) => failures < 2 && Problem.from(error).status === 0,
      retryDelay: 1_000,
    },
  },
});

queryClient.getQueryCache().subscribe((change) => {
  if (change.type === "updated" && change.action.type === "success") readAt.set(Date.now());
});
