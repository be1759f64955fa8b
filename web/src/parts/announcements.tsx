import { useEffect } from "react";
import { Store, useStore } from "../store";
import { Moment } from "./time";

interface Announcement {
  text: string;
  at: number;
}

const latest = new Store<Announcement | null>(null);

/** Tell everybody, screen readers too, that something was done. It stays in sight until it is put away, another comes or the page is left. */
export function announce(text: string): void {
  latest.set({ text, at: Date.now() });
}

export function Announcements({ place }: { place: string }) {
  const announcement = useStore(latest);
  useEffect(() => latest.set(null), [place]);
  return (
    <div className="announcements" role="status">
      {announcement !== null && (
        <p>
          <Moment at={announcement.at} parts="time" /> {announcement.text}{" "}
          <button type="button" className="quiet" onClick={() => latest.set(null)}>
            Put away
          </button>
        </p>
      )}
    </div>
  );
}
