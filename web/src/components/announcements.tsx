import { useEffect } from "react";
import { Store, useStore } from "../store";
import { queryClient } from "../stream/queryClient";
import { Moment } from "./time";

/** It is shown for at least this long, so that it can be read. */
const LEAST_MS = 5_000;

/** What a request is about. `state` returns its state as it was last read. */
interface Subject {
  state: () => string | undefined;
}

interface Announcement {
  text: string;
  at: number;
  subject?: Subject | undefined;
  /** The state of the subject as it was announced. */
  was?: string | undefined;
}

const latest = new Store<Announcement | null>(null);

/**
 * Announce, also to screen readers, that something was done. The announcement is shown until it is dismissed, another one follows, the
 * page is left or the state of its subject has changed: from then on the page shows that state, and the announcement is out of date.
 */
export function announce(text: string, subject?: Subject, was = subject?.state()): void {
  latest.set({ text, at: Date.now(), subject, was });
}

/** Dismiss the announcement once it is out of date. Returns a function that ends the watch. */
function watch(announcement: Announcement | null): (() => void) | undefined {
  const subject = announcement?.subject;
  if (announcement === null || subject === undefined) return undefined;
  const look = (): void => {
    const read = Date.now() - announcement.at >= LEAST_MS;
    if (read && subject.state() !== announcement.was && latest.get() === announcement) latest.set(null);
  };
  const end = queryClient.getQueryCache().subscribe(look);
  const timer = setTimeout(look, LEAST_MS);
  return () => {
    end();
    clearTimeout(timer);
  };
}

export function Announcements({ place }: { place: string }) {
  const announcement = useStore(latest);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page takes the announcement away.
  useEffect(() => latest.set(null), [place]);
  useEffect(() => watch(announcement), [announcement]);
  return (
    <div className="announcements" role="status">
      {announcement !== null && (
        <p>
          <Moment at={announcement.at} parts="time" /> {announcement.text}{" "}
          <button type="button" className="quiet" onClick={() => latest.set(null)}>
            Dismiss
          </button>
        </p>
      )}
    </div>
  );
}
