import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { type Action, tableActions } from "../actions";
import { FLEET, subscriptionAddress, tableOptionsAddress } from "../addresses";
import type { Reload, Table } from "../api/client";
import { subscriptionQuery, tableQuery, tableReloadsQuery, versionsQuery } from "../api/queries";
import { ActionButtons } from "../components/actions";
import { Fact, Facts } from "../components/facts";
import { Page, Section } from "../components/page";
import { QueryBoundary } from "../components/queryBoundary";
import { Remedy } from "../components/remedy";
import { StatusBadge } from "../components/statusBadge";
import { StatusBanner } from "../components/statusBanner";
import { Ago, Moment } from "../components/time";
import { type Detection, detectionFacts, detectionOf } from "../labels/detections";
import { bytes, count, some } from "../labels/numbers";
import { LOADED } from "../labels/partitions";
import { optionName, optionValue } from "../labels/tableOptions";
import { asked, copiedWords, copyWords, isCopied, qualified, tableName, tableWords } from "../labels/tables";
import type { Tone } from "../labels/tone";
import { FreshnessGoalSection } from "./freshnessGoal";
import { Partitions } from "./tablePartitions";
import { RefusedRows } from "./tableRefused";
import { TimeLine } from "./tableTimeLine";
import { TableVerified } from "./tableVerified";
import { Versions } from "./tableVersions";

/** One table: how it is and what it needs, how far its copy is, and its history. */
export function TablePage({ subscription, id }: { subscription: string; id: string }) {
  const table = useQuery(tableQuery(subscription, id));
  const capture = useQuery(subscriptionQuery(subscription)).data?.capture;
  const versions = useQuery(versionsQuery(subscription, id));
  const reloads = useQuery(tableReloadsQuery(subscription, id));
  const found = table.data;
  const actions = found === undefined ? [] : tableActions(subscription, found);
  const parked = found?.state === "parked";
  return (
    <Page
      title={found === undefined ? "Table" : tableName(found)}
      above={
        <>
          <Link href={FLEET}>Fleet</Link> / <Link href={subscriptionAddress(subscription)}>{subscription}</Link>
        </>
      }
      actions={<ActionButtons actions={parked ? actions.slice(1) : actions} />}
    >
      <QueryBoundary query={table}>
        {(present) => (
          <>
            <StateBanner table={present} remedy={parked ? actions.slice(0, 1) : []} />
            <RefusedRows subscription={subscription} table={present} />
            <Section
              title="Declaration"
              aside={present.state !== "removed" && <Link href={tableOptionsAddress(subscription, id)}>Change options</Link>}
            >
              <Declaration table={present} detection={detectionOf(capture, present)} />
            </Section>
            <TableVerified subscription={subscription} table={present} />
            <FreshnessGoalSection subscription={subscription} table={id} />
            <Partitions subscription={subscription} table={present} />
            <Section title="Time line" aside="Requests, and when they took effect; newest first">
              <TimeLine subscription={subscription} table={present} />
            </Section>
          </>
        )}
      </QueryBoundary>
      <Section title="History" aside="Schema and state, newest first">
        <QueryBoundary query={versions}>{(items) => <Versions versions={items} />}</QueryBoundary>
      </Section>
      <Section title="Reloads" aside="The newest 10">
        <QueryBoundary query={reloads}>{(items) => <Reloads reloads={items} />}</QueryBoundary>
      </Section>
    </Page>
  );
}

/** `remedy`: the action that its state asks for. */
function StateBanner({ table, remedy }: { table: Table; remedy: Action[] }) {
  const { tone, word, means } = tableWords(table);
  const hint = asked(table);
  return (
    <StatusBanner
      tone={tone}
      word={word}
      why={table.reason ?? means}
      remedy={table.health.remedy}
      actions={table.health.actions}
      here="table"
      since={
        <>
          since <Ago at={table.state_since} />
          {hint !== null && <>; {hint}</>}
        </>
      }
    >
      {table.reason != null && <p className="prose soft">{means}</p>}
      {remedy.length > 0 && (
        <div className="actions">
          <ActionButtons actions={remedy} first />
        </div>
      )}
      {isCopied(table) && <CopyProgress table={table} />}
    </StatusBanner>
  );
}

function CopyProgress({ table: { copied, health } }: { table: Table }) {
  return (
    <div className="copy">
      <progress aria-label="Copied" max={100} {...(copied.percent == null ? {} : { value: copied.percent })} />
      <span>{copyWords(copied, health.status !== "moving") ?? "progress not known yet"}</span>
      <span className="soft">{copiedWords(copied)}</span>
    </div>
  );
}

/** Options that select and name columns; empty ones are not shown. */
const SELECTIONS = ["include_columns", "exclude_columns", "mask", "rename"] as const;

/** `detection`: what the subscription's capture says of this table. */
export function Declaration({ table, detection }: { table: Table; detection: Detection | undefined }) {
  const declaredKey = table.key.length === 0 && (detection?.key?.length ?? 0) > 0;
  const texts = Object.keys(table.columns);
  return (
    <Facts>
      <Fact name="On the target" note={table.into_existing ? "existing table" : undefined}>
        {qualified(table.target)}
      </Fact>
      <Fact name="Key" note={declaredKey ? "checked in each cycle, unless the source has a key of its own" : undefined}>
        {declaredKey ? detection?.key?.join(", ") : table.key.length > 0 ? table.key.join(", ") : "the source's own"}
      </Fact>
      {detectionFacts(detection ?? {}).map(([name, value]) => (
        <Fact key={name} name={name}>
          {value}
        </Fact>
      ))}
      <Fact name="Followed">{table.operations.join(", ")}</Fact>
      {table.where != null && (
        <Fact name="Only rows where">
          <code>{table.where}</code>
        </Fact>
      )}
      {texts.length > 0 && <Fact name="Kept as text">{texts.join(", ")}</Fact>}
      {SELECTIONS.map((option) => {
        const value = table[option] ?? {};
        return (
          Object.keys(value).length > 0 && (
            <Fact key={option} name={optionName(option)}>
              {optionValue(option, value)}
            </Fact>
          )
        );
      })}
      {table.shared_into != null && (
        <Fact name="Shown in" note={`where ${table.shared_into.source_column} is ${table.shared_into.source_value}`}>
          {qualified(table.shared_into)}
        </Fact>
      )}
      <Fact name="Rows copied" note={table.copied.bytes == null ? undefined : bytes(table.copied.bytes)}>
        {count(table.copied.rows)}
      </Fact>
      <Fact name="Rows that the source deletes">{table.deletes === "mark" ? "stay, marked" : "are deleted"}</Fact>
      <Fact name="Versions of its rows" note={table.history ? `in ${table.target.schema}.${table.target.name}__history` : undefined}>
        {table.history ? "are kept" : "are not kept"}
      </Fact>
      <Fact
        name="Rows that the target refuses"
        note={(table.rows_set_aside ?? 0) > 0 ? `${count(table.rows_set_aside)} quarantined now` : undefined}
      >
        {table.refused_rows === "set_aside" ? "are quarantined" : "park the table"}
      </Fact>
      <Fact name="Added" note={table.from_pattern === true ? "by a pattern" : undefined}>
        <Moment at={table.created_at} />
      </Fact>
      {table.target_table != null && <Fact name="Its table on the target">{table.target_table.replaceAll("_", " ")}</Fact>}
    </Facts>
  );
}

/** Which partitions a reload loads, and why. */
function LoadedPartitions({ partitions }: { partitions: NonNullable<Reload["partitions"]> }) {
  if (partitions.length === 0) return <p className="soft">None of its partitions</p>;
  return (
    <details>
      <summary>{some(partitions.length, "partition")}</summary>
      <ul className="changes">
        {partitions.map(({ name, reason, generation }) => (
          <li key={name}>
            {name}: {LOADED[reason]}
            {generation !== null && `, generation ${count(generation)}`}
          </li>
        ))}
      </ul>
    </details>
  );
}

const WORK: Record<string, Tone> = { queued: "busy", running: "busy", succeeded: "good", failed: "bad", cancelled: "idle" };

function Reloads({ reloads }: { reloads: Reload[] }) {
  if (reloads.length === 0) return <p className="soft">It was never reloaded by request.</p>;
  return (
    <ol className="history">
      {reloads.map((reload) => (
        <li key={reload.id}>
          <span className="when">
            <Moment at={reload.created_at} />
          </span>
          <StatusBadge tone={WORK[reload.state] ?? "unknown"}>{reload.state}</StatusBadge>
          <div>
            {reload.ended_at === null ? (
              <p>
                {copyWords(reload.copied) ?? "Progress not known yet"}: {copiedWords(reload.copied)}
              </p>
            ) : (
              <p>
                {count(reload.copied.rows)} rows, ended <Moment at={reload.ended_at} />
                {reload.position !== null && (
                  <>
                    , follows the source from <code>{reload.position}</code>
                  </>
                )}
              </p>
            )}
            {reload.partitions !== null && <LoadedPartitions partitions={reload.partitions} />}
            {typeof reload.problem?.detail === "string" && <p>{reload.problem.detail}</p>}
            {typeof reload.problem?.remedy === "string" && <Remedy text={reload.problem.remedy} here="table" className="soft" />}
          </div>
        </li>
      ))}
    </ol>
  );
}
