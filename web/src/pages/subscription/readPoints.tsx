import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { Link } from "wouter";
import type { Action } from "../../actions";
import { queryAtAddress, tableAddress } from "../../addresses";
import type { Subscription } from "../../api/client";
import { createReadPoint, type ReadPoint, type ReadPointRequest, readPointsQuery, releaseReadPoint } from "../../api/readPoints";
import { ActionButtons } from "../../components/actions";
import { announce } from "../../components/announcements";
import { DurationField } from "../../components/durationField";
import { Section } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { Moment } from "../../components/time";
import { UnderWay } from "../../components/underWay";
import { typedMs } from "../../labels/durations";
import { NAME_HINT, NAME_PATTERN } from "../../labels/kinds";
import { some } from "../../labels/numbers";
import { qualified } from "../../labels/tables";
import type { Tone } from "../../labels/tone";
import { type TypedDuration, typedSeconds } from "../../labels/typedDuration";
import { useStoppable } from "../../stoppable";
import { queryClient } from "../../stream/queryClient";
import { SecondsField } from "../freshness/fields";
import { FRESHNESS_MODES, FreshnessField, type FreshnessWish } from "../freshness/freshnessField";
import { Refusal } from "../freshness/refusal";

const MOST_TTL_S = 7 * 86_400;

/** States of all tables at one position, kept for queries: created, listed, released. */
export default function ReadPoints({ subscription: { name } }: { subscription: Subscription }) {
  const points = useQuery(readPointsQuery(name));
  return (
    <>
      <p className="prose soft">
        A read point is the state of all tables at one position. It is kept for a time, so that several queries show the same state,
        whatever is replicated meanwhile.
      </p>
      <Section title="Create">
        <Create subscription={name} />
      </Section>
      <Section title="Read points" aside="Those that ended stay listed for a week">
        <QueryBoundary query={points}>
          {(items) => (items.length === 0 ? <p className="soft">There is none.</p> : <Ledger subscription={name} points={items} />)}
        </QueryBoundary>
      </Section>
    </>
  );
}

function Create({ subscription }: { subscription: string }) {
  const [name, setName] = useState("");
  const [ttl, setTtl] = useState<TypedDuration>({ number: "10", unit: "minutes" });
  const [wish, setWish] = useState<FreshnessWish>({ mode: "any", position: "" });
  const [limit, setLimit] = useState("10");
  const id = useId();
  const creating = useStoppable(async (body: ReadPointRequest, signal) => {
    const { position } = await createReadPoint(subscription, body, signal);
    setName("");
    announce(`${body.name}: the read point was created at ${position}.`);
    await queryClient.invalidateQueries({ queryKey: readPointsQuery(subscription).queryKey });
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (creating.pending) return;
    const position = wish.mode === "position" ? wish.position.trim() : null;
    creating.begin({ name, ttl_seconds: typedSeconds(ttl), freshness: { mode: wish.mode, position, timeout_ms: typedMs(limit) } });
  };
  return (
    <form className="ask" onSubmit={submit}>
      <div className="limits">
        <div className="typed">
          <label htmlFor={id}>Name</label>
          <input
            id={id}
            value={name}
            required
            pattern={NAME_PATTERN}
            autoComplete="off"
            spellCheck={false}
            aria-describedby={`${id}-hint`}
            onChange={(event) => setName(event.target.value)}
          />
          <small id={`${id}-hint`}>{NAME_HINT}</small>
        </div>
        <DurationField label="Kept for" value={ttl} least={1} most={MOST_TTL_S} onChange={setTtl} />
      </div>
      <FreshnessField wish={wish} modes={FRESHNESS_MODES} onWish={setWish} />
      <SecondsField label="Maximum wait" value={limit} least={0} disabled={wish.mode === "any"} onChange={setLimit} />
      <div className="ask-foot">
        <button type="submit" className="primary" aria-disabled={creating.pending}>
          Create
        </button>
        <UnderWay doing="Creating" verb="Cancel" work={creating} />
      </div>
      {creating.error !== null && (
        <div className="whole">
          <Refusal error={creating.error} subscription={subscription} />
        </div>
      )}
    </form>
  );
}

const STATES: Record<ReadPoint["state"], { tone: Tone; word: string }> = {
  held: { tone: "good", word: "held" },
  ended: { tone: "idle", word: "ended" },
  unknown: { tone: "unknown", word: "unknown" },
};

const Ledger = ({ subscription, points }: { subscription: string; points: ReadPoint[] }) => (
  <table className="ledger kept">
    <caption className="unseen">Read points by name</caption>
    <thead>
      <tr>
        <th scope="col">Name</th>
        <th scope="col">State</th>
        <th scope="col">Position</th>
        <th scope="col">Expires</th>
        <th scope="col">Tables</th>
        <th scope="col">
          <span className="unseen">What can be done</span>
        </th>
      </tr>
    </thead>
    <tbody>
      {points.map((point) => (
        <Row key={`${point.name} ${point.created_at}`} subscription={subscription} point={point} />
      ))}
    </tbody>
  </table>
);

/** One read point. */
export function Row({ subscription, point }: { subscription: string; point: ReadPoint }) {
  const { name, state, reason, position, committed_at, created_at, expires_at } = point;
  const { tone, word } = STATES[state] ?? { tone: "unknown", word: `unknown (${state})` };
  return (
    <tr>
      <th scope="row" data-column="Name">
        <span>{name}</span>
        <small>
          created <Moment at={created_at} />
        </small>
      </th>
      <td data-column="State" className="telling">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {reason != null && <p>{reason}</p>}
        {state === "unknown" && <p>No engine is connected that could say.</p>}
      </td>
      <td data-column="Position">
        <code>{position}</code>
        {committed_at !== null && (
          <small>
            committed <Moment at={committed_at} />
          </small>
        )}
      </td>
      <td data-column="Expires">
        <Moment at={expires_at} />
      </td>
      <td data-column="Tables">
        <Tables subscription={subscription} point={point} />
      </td>
      <td data-column="What can be done" className="row-actions">
        {state === "held" && (
          <Link href={queryAtAddress(subscription, name)} aria-label={`Query at ${name}`}>
            Query
          </Link>
        )}
        <ActionButtons actions={[releasing(subscription, point)]} />
      </td>
    </tr>
  );
}

function Tables({ subscription, point: { tables } }: { subscription: string; point: ReadPoint }) {
  const incomplete = tables.filter(({ complete }) => !complete).length;
  return (
    <>
      <details>
        <summary>{some(tables.length, "table")}</summary>
        <ul className="changes">
          {tables.map((table) => (
            <li key={table.id}>
              <Link href={tableAddress(subscription, table.id)}>{qualified(table)}</Link>
              {table.schema_version !== null && `, schema ${table.schema_version}`}
              {!table.complete && ", not complete"}
            </li>
          ))}
        </ul>
      </details>
      {incomplete > 0 && <StatusBadge tone="warn">{incomplete} not complete</StatusBadge>}
    </>
  );
}

function releasing(subscription: string, { name, state }: ReadPoint): Action {
  const gone = state === "ended";
  return {
    verb: gone ? "Remove" : "Release",
    title: gone ? `Remove ${name} from the list?` : `Release the read point ${name}?`,
    does: gone ? ["It has ended already; it is no longer listed."] : ["Queries that read at it end.", "Its name is free again."],
    name,
    role: "viewer",
    run: () => releaseReadPoint(subscription, name),
    done: `${name}: the read point was ${gone ? "removed from the list" : "released"}.`,
  };
}
