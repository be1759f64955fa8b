import { useEffect, useState } from "react";

let serverAheadMs = 0;

/** Ages are measured by the server's clock: a browser's may be minutes off. */
export function noteServerTime(response: Response): void {
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(date)) return;
  const ahead = date - Date.now();
  // The header is cut to whole seconds, so smaller differences say nothing.
  serverAheadMs = Math.abs(ahead) < 2000 ? 0 : ahead;
}

/** A moment of the browser's clock as the server's clock had it, in ms. */
export const atServer = (browserMs: number): number => browserMs + serverAheadMs;

/** The server's time, in ms. */
export const now = (): number => atServer(Date.now());

/** The server's time, renewed every `everyMs` while the tab is seen. */
export function useNow(everyMs: number): number {
  const [moment, setMoment] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setMoment(now());
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return moment;
}
