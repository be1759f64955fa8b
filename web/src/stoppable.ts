import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { atServer } from "./clock";

/** Work that the user began and may stop; leaving the page stops it too. */
export interface Stoppable<Wish, Found> {
  begin: (wish: Wish) => void;
  stop: () => void;
  pending: boolean;
  /** By the server's clock, in ms; 0 before the first time. */
  begunAt: number;
  stopped: boolean;
  /** Why it failed; stopping it is no failure. */
  error: unknown;
  wish: Wish | undefined;
  found: Found | undefined;
}

export function useStoppable<Wish, Found>(work: (wish: Wish, signal: AbortSignal) => Promise<Found>): Stoppable<Wish, Found> {
  const running = useRef<AbortController | null>(null);
  const mutation = useMutation({
    mutationFn: (wish: Wish) => {
      running.current?.abort();
      running.current = new AbortController();
      return work(wish, running.current.signal);
    },
  });
  useEffect(() => () => running.current?.abort(), []);
  const stopped = mutation.error instanceof DOMException && mutation.error.name === "AbortError";
  return {
    begin: (wish) => mutation.mutate(wish),
    stop: () => running.current?.abort(),
    pending: mutation.isPending,
    begunAt: atServer(mutation.submittedAt),
    stopped,
    error: stopped ? null : mutation.error,
    wish: mutation.variables,
    found: mutation.data,
  };
}
