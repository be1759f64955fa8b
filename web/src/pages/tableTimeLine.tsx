import { useQuery } from "@tanstack/react-query";
import type { Table } from "../api/client";
import { eventPageQuery } from "../api/history";
import { SEVERITY_TONES } from "../components/events";
import { OlderNewer } from "../components/olderNewer";
import { QueryBoundary } from "../components/queryBoundary";
import { Remedy } from "../components/remedy";
import { StatusBadge } from "../components/statusBadge";
import { Ago, Moment } from "../components/time";
import { useFilters } from "../filters";
import { milliseconds } from "../labels/durations";
import { tableName, tableStateWords } from "../labels/tables";
import { type Entry, outcomeWords, timeLine, toneOfOutcome } from "../labels/timeLine";
import type { Tone } from "../labels/tone";

/** What was asked of a table and when it was in effect, and what came by itself. */
export function TimeLine({ subscription, table }: { subscription: string; table: Table }) {
  const filters = useFilters();
  const page = filters.get("from");
  const events = useQuery(eventPageQuery(subscription, { subject: tableName(table) }, page));
  return (
    <QueryBoundary query={events}>
      {({ items, next_page_token }) => (
        <>
          {items.length === 0 ? (
            <p className="soft">Nothing is known any more: events are kept for a while only.</p>
          ) : (
            <ol className="history">
              {timeLine(items, page === "" ? table.state : null).map((entry) => (
                <li key={entry.event.id}>
                  <Line entry={entry} />
                </li>
              ))}
            </ol>
          )}
          <OlderNewer filters={filters} next={next_page_token} noun="entries" />
        </>
      )}
    </QueryBoundary>
  );
}

function Line({ entry }: { entry: Entry }) {
  const { event, outcome } = entry;
  const { tone, word } = headOf(entry);
  return (
    <>
      <span className="when">
        <Moment at={event.at} />
      </span>
      <StatusBadge tone={tone}>{word}</StatusBadge>
      <div>
        <p>{event.detail}</p>
        <Course entry={entry} />
        {event.remedy != null && (outcome === null || outcome.is === "waiting") && (
          <Remedy text={event.remedy} actions={event.actions} here="table" className="soft" />
        )}
      </div>
    </>
  );
}

/** How a request came into effect, step by step. */
function Course({ entry: { event, steps, outcome } }: { entry: Entry }) {
  const words = steps.map(({ state, afterMs }) => `${tableStateWords(state).word} after ${milliseconds(afterMs)}`);
  if (outcome !== null) words.push(outcomeWords(outcome, milliseconds));
  if (words.length === 0) return null;
  return (
    <p className="soft">
      {words.join(", ")}
      {outcome?.is === "waiting" && (
        <>
          , asked for <Ago at={event.at} />
        </>
      )}
    </p>
  );
}

/** What happens to a table without being a state of it, in a word. */
const WORDS: Record<string, string> = {
  table_copied: "copied",
  table_partitions_reloaded: "reloaded",
  table_renamed: "renamed",
  table_dropped: "dropped",
  table_not_dropped: "not dropped",
  rows_set_aside: "rows aside",
  refused_rows_retried: "rows aside",
  refused_rows_skipped: "rows aside",
};

function headOf({ event, request, outcome }: Entry): { tone: Tone; word: string } {
  if (request !== null) return { tone: toneOfOutcome(outcome), word: request };
  if (event.table_state != null) return tableStateWords(event.table_state);
  return { tone: SEVERITY_TONES[event.severity] ?? "unknown", word: WORDS[event.kind] ?? event.severity };
}
