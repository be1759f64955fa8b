import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { NEW_SUBSCRIPTION, subscriptionAddress } from "../addresses";
import type { Subscription } from "../api/client";
import { readinessQuery, subscriptionsQuery } from "../api/queries";
import { LagCell } from "../components/lagCell";
import { Page } from "../components/page";
import { QueryBoundary } from "../components/queryBoundary";
import { Remedy } from "../components/remedy";
import { SearchField } from "../components/searchField";
import { StatusBadge } from "../components/statusBadge";
import { StatusCounts } from "../components/statusCounts";
import { Ago } from "../components/time";
import { UsageBar } from "../components/usageBar";
import { type Filters, matches, useFilters } from "../filters";
import { GROUP_WORDS, HEALTH_GROUPS, type Health, healthOf, heldUp, logBudget, slotShare, warnShare, worstFirst } from "../labels/health";
import { bytes, count, ofBytes } from "../labels/numbers";
import { statesByNeed, tableStateWords } from "../labels/tables";
import { usePermission } from "../usePermission";
import { FirstStart } from "./wizard/firstStart";

interface Judged {
  item: Subscription;
  health: Health;
}

/** All subscriptions, the worst first. */
export function FleetPage() {
  const subscriptions = useQuery(subscriptionsQuery());
  const may = usePermission();
  return (
    <Page
      title="Fleet"
      actions={
        may("operator") &&
        subscriptions.data !== undefined &&
        subscriptions.data.length > 0 && (
          <Link href={NEW_SUBSCRIPTION} className="button">
            New subscription
          </Link>
        )
      }
    >
      <Readiness />
      <QueryBoundary query={subscriptions}>{(items) => (items.length === 0 ? <FirstStart /> : <Fleet items={items} />)}</QueryBoundary>
    </Page>
  );
}

/** Says what keeps the server from its work, and nothing where all is well. */
function Readiness() {
  const readiness = useQuery(readinessQuery());
  if (readiness.data === undefined || readiness.data.length === 0) return null;
  return (
    <div className="note tone-warn" role="status">
      <ul>
        {readiness.data.map(({ detail }) => (
          <li key={detail}>
            <StatusBadge tone="warn">{detail}</StatusBadge>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Fleet({ items }: { items: Subscription[] }) {
  const filters = useFilters();
  const judged = items.map((item): Judged => ({ item, health: healthOf(item) })).sort(worstFirst);
  const shown = judged.filter(
    ({ item, health }) =>
      (filters.get("health") === "" || health.group === filters.get("health")) &&
      matches(filters.get("q"), item.name, item.source, item.target),
  );
  return (
    <>
      <FleetCounts judged={judged} filters={filters} />
      <SearchField
        label="Find by name, source or target"
        filters={filters}
        result={`${count(shown.length)} of ${count(items.length)} subscriptions`}
      />
      {shown.length > 0 && (
        <table className="ledger">
          <caption className="unseen">Subscriptions, those that need attention first</caption>
          <thead>
            <tr>
              <th scope="col">Subscription</th>
              <th scope="col">Health</th>
              <th scope="col" className="number">
                Behind the source
              </th>
              <th scope="col" className="number">
                Log retained there
              </th>
              <th scope="col">Tables</th>
              <th scope="col">Last fault</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ item, health }) => (
              <Row key={item.name} item={item} health={health} />
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function FleetCounts({ judged, filters }: { judged: Judged[]; filters: Filters }) {
  const items = HEALTH_GROUPS.map((group) => ({
    value: group,
    ...GROUP_WORDS[group],
    number: judged.filter(({ health }) => health.group === group).length,
  }));
  return <StatusCounts noun="subscriptions" filter="health" filters={filters} items={items} total={judged.length} />;
}

function Row({ item, health }: Judged) {
  const share = slotShare(item);
  return (
    <tr>
      <th scope="row" data-column="Subscription">
        <Link href={subscriptionAddress(item.name)}>{item.name}</Link>
        <small>
          {item.source} → {item.target}
        </small>
      </th>
      <td data-column="Health" className="telling">
        <StatusBadge tone={health.tone}>{health.word}</StatusBadge>
        <small>{health.why}</small>
        {health.remedy !== null && <Remedy text={health.remedy} actions={health.actions} />}
      </td>
      <td data-column="Behind the source" className="number">
        <LagCell lag={item.lag} />
      </td>
      <td data-column="Log retained there" className="number">
        {bytes(item.retained_bytes)}
        {share !== null && (
          <small>
            <UsageBar share={share} warnAt={warnShare(item)} /> {ofBytes(logBudget(item))}
          </small>
        )}
      </td>
      <td data-column="Tables">
        <TableStates subscription={item} />
      </td>
      <td data-column="Last fault" className="telling">
        <Fault fault={item.last_fault ?? null} shown={health.why} />
      </td>
    </tr>
  );
}

/** "2 parked", "298 live". */
function TableStates({ subscription: { table_states: states, health } }: { subscription: Subscription }) {
  const held = heldUp(health);
  const found = Object.keys(states).sort(statesByNeed);
  if (found.length === 0) return <span className="soft">none</span>;
  return (
    <ul className="states">
      {found.map((state) => {
        const { tone, word } = tableStateWords(state, held);
        return (
          <li key={state}>
            <StatusBadge tone={tone}>
              {count(states[state])} {word}
            </StatusBadge>
          </li>
        );
      })}
    </ul>
  );
}

/** `shown`: what the row shows already. */
function Fault({ fault, shown }: { fault: Subscription["last_fault"]; shown: string }) {
  if (fault == null) return <span className="soft">none</span>;
  return (
    <>
      <Ago at={fault.at} />
      {fault.over && <small>over</small>}
      {!fault.detail.endsWith(shown) && <small>{fault.detail}</small>}
    </>
  );
}
