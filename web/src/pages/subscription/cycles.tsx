import { useMutation, useQuery } from "@tanstack/react-query";
import type { Subscription } from "../../api/client";
import { beginCycle, type Cycle, type CyclePage, cyclesKey, cyclesQuery } from "../../api/cycles";
import { useNow } from "../../clock";
import { announce } from "../../components/announcements";
import { Fact, Facts } from "../../components/facts";
import { OlderNewer } from "../../components/olderNewer";
import { Section } from "../../components/page";
import { ProblemNote } from "../../components/problemNote";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { Ago, Moment } from "../../components/time";
import { useFilters } from "../../filters";
import { changesWords, cycleState, foundWords, hasCycles, methodWords, readWords } from "../../labels/cycles";
import { milliseconds } from "../../labels/durations";
import { bytes, seconds, some } from "../../labels/numbers";
import { qualified } from "../../labels/tables";
import { durationWords } from "../../labels/typedDuration";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";

/** The cycles of a subscription that has some. */
export default function Cycles({ subscription }: { subscription: Subscription }) {
  if (!hasCycles(subscription)) return <p>This subscription has no cycles: changes arrive as they are made on the source.</p>;
  return <Readings subscription={subscription} />;
}

/** Readings of the source's tables, what each found, and how old what readers see is. */
function Readings({ subscription }: { subscription: Subscription }) {
  const { name, source, target } = subscription;
  const filters = useFilters();
  const page = filters.get("from");
  const newest = useQuery(cyclesQuery(name, ""));
  const cycles = useQuery(cyclesQuery(name, page));
  return (
    <>
      <p className="prose soft">
        The tables of {source} are read again and again, and compared with what was read before. One such reading is a cycle: it reads every
        table as it was at one moment, and what differs is written to {target} in one step.
      </p>
      <Section title="Age of the data">
        <QueryBoundary query={newest}>{(found) => <Age subscription={subscription} found={found} />}</QueryBoundary>
        <Begin subscription={subscription} />
      </Section>
      <Section title="Cycles" aside="The newest first">
        <QueryBoundary query={cycles}>
          {({ items, next_page_token }) => (
            <>
              {items.length === 0 ? <p className="soft">There was none yet.</p> : <Ledger cycles={items} />}
              <OlderNewer filters={filters} next={next_page_token} noun="cycles" />
            </>
          )}
        </QueryBoundary>
      </Section>
    </>
  );
}

function Age({ subscription: { capture, source }, found }: { subscription: Subscription; found: CyclePage }) {
  const underWay = found.items.find(({ state }) => state === "running" || state === "requested");
  return (
    <Facts>
      <Fact name={`Readers see ${source} as of`} note={found.as_of != null && <Ago at={found.as_of} />}>
        {found.as_of == null ? "nothing was read yet" : <Moment at={found.as_of} />}
      </Fact>
      <Fact name="Next cycle" note={underWay === undefined && found.next_at != null && <Moment at={found.next_at} />}>
        {underWay === undefined ? <Until at={found.next_at} /> : `${cycleState(underWay.state).word} (${underWay.number})`}
      </Fact>
      {"every_seconds" in capture && capture.every_seconds !== undefined && (
        <Fact name="A cycle begins" note="and for each wait for what is committed now">
          every {durationWords(capture.every_seconds)}
        </Fact>
      )}
      {"method" in capture && capture.method !== undefined && <Fact name="How changes are found">{methodWords(capture.method)}</Fact>}
    </Facts>
  );
}

/** "in 3 min"; a moment that has passed is due. */
function Until({ at }: { at: string | null | undefined }) {
  const left = (Date.parse(at ?? "") - useNow(1_000)) / 1_000;
  if (Number.isNaN(left)) return <>none while the subscription does not run</>;
  return <>{left <= 0 ? "now" : `in ${seconds(left)}`}</>;
}

function Begin({ subscription: { name, state } }: { subscription: Subscription }) {
  const may = usePermission()("operator");
  const begin = useMutation({
    mutationFn: () => beginCycle(name),
    onSuccess: async ({ number }) => {
      announce(`${name}: cycle ${number} was requested.`);
      await queryClient.invalidateQueries({ queryKey: cyclesKey(name) });
    },
  });
  if (!may) return <p className="soft">To begin a cycle, an operator's token is required; yours is read-only.</p>;
  return (
    <>
      <p>
        <button type="button" className="primary" disabled={begin.isPending || state !== "running"} onClick={() => begin.mutate()}>
          {begin.isPending ? "Asking …" : "Begin a cycle now"}
        </button>
      </p>
      {begin.error !== null && <ProblemNote error={begin.error} />}
    </>
  );
}

const Ledger = ({ cycles }: { cycles: Cycle[] }) => (
  <table className="ledger cycles">
    <caption className="unseen">Cycles, the newest first</caption>
    <thead>
      <tr>
        <th scope="col">Cycle</th>
        <th scope="col">State</th>
        <th scope="col">As of</th>
        <th scope="col" className="number">
          Took
        </th>
        <th scope="col">Changes</th>
        <th scope="col">Read</th>
        <th scope="col">Tables</th>
      </tr>
    </thead>
    <tbody>
      {cycles.map((cycle) => (
        <Row key={cycle.number} cycle={cycle} />
      ))}
    </tbody>
  </table>
);

function Row({ cycle }: { cycle: Cycle }) {
  const { tone, word } = cycleState(cycle.state);
  const ended = cycle.ended_at !== null && cycle.fault === null;
  return (
    <tr>
      <th scope="row" data-column="Cycle">
        <span>{cycle.number}</span>
        <small>
          <code>{cycle.position}</code>
        </small>
      </th>
      <td data-column="State" className="telling">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {cycle.fault !== null && (
          <p>
            <code>{cycle.fault}</code>
            {cycle.fault_table !== null && ` at ${cycle.fault_table}`}: {cycle.fault_detail}
          </p>
        )}
        {!cycle.one_snapshot && <p>Its tables were not read at one moment.</p>}
      </td>
      <td data-column="As of">{cycle.taken_at === null ? "–" : <Moment at={cycle.taken_at} />}</td>
      <td data-column="Took" className="number">
        {seconds(cycle.seconds)}
      </td>
      <td data-column="Changes">{ended ? changesWords(cycle) : "–"}</td>
      <td data-column="Read">
        {ended ? bytes(cycle.bytes_read) : "–"}
        {ended && <small>{readWords(cycle)}</small>}
        {Object.entries(cycle.source_reads).map(([what, number]) => (
          <small key={what}>{`${what}: ${number}`}</small>
        ))}
      </td>
      <td data-column="Tables">{ended ? <Tables cycle={cycle} /> : "–"}</td>
    </tr>
  );
}

function Tables({ cycle: { tables } }: { cycle: Cycle }) {
  const again = tables.filter(({ copied_again }) => copied_again).length;
  const unread = tables.filter(({ fault }) => fault !== null).length;
  return (
    <>
      <details>
        <summary>{some(tables.length, "table")}</summary>
        <ul className="changes">
          {tables.map((table) => (
            <li key={qualified(table)}>
              {qualified(table)}: {foundWords(table)}
              <small>
                {readWords(table)}, {bytes(table.bytes_read)} in {milliseconds(table.seconds * 1000)}; {methodWords(table.method)}
                {(table.snapshots ?? 1) > 1 && `; ranges of its key in ${table.snapshots} snapshots, as the connection was lost`}
              </small>
            </li>
          ))}
        </ul>
      </details>
      {unread > 0 && <StatusBadge tone="bad">{unread} not read</StatusBadge>}
      {again > 0 && <StatusBadge tone="warn">{again} copied again</StatusBadge>}
    </>
  );
}
