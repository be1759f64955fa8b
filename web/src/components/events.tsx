import type { Event } from "../api/client";
import type { Place } from "../labels/remedies";
import type { Tone } from "../labels/tone";
import { Remedy } from "./remedy";
import { StatusBadge } from "./statusBadge";
import { Moment } from "./time";

export const SEVERITY_TONES: Record<string, Tone> = { error: "bad", warning: "warn", info: "note" };

/** Events, newest first. `here`: the page that shows them. */
export function EventList({ events, here }: { events: Event[]; here: Place }) {
  if (events.length === 0) return <p className="soft">Nothing has happened yet.</p>;
  return (
    <ol className="events">
      {events.map((event) => (
        <li key={event.id}>
          <span className="when">
            <Moment at={event.at} />
          </span>
          <StatusBadge tone={SEVERITY_TONES[event.severity] ?? "unknown"}>{event.severity}</StatusBadge>
          <div>
            <p>
              {event.subject != null && !event.detail.includes(event.subject) && `${event.subject}: `}
              {event.detail}
            </p>
            {event.remedy != null && <Remedy text={event.remedy} actions={event.actions} here={here} className="soft" />}
          </div>
        </li>
      ))}
    </ol>
  );
}
