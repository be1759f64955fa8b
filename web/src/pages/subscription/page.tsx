import { useQuery } from "@tanstack/react-query";
import { Suspense } from "react";
import { Link } from "wouter";
import { addTableAddress, CONNECTIONS, subscriptionPart } from "../../addresses";
import type { Subscription } from "../../api/client";
import { eventsQuery } from "../../api/queries";
import { CrashGuard } from "../../components/crash";
import { EventList } from "../../components/events";
import { Fact, Facts } from "../../components/facts";
import { LagCell } from "../../components/lagCell";
import { Section } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { StatusBadge } from "../../components/statusBadge";
import { StatusBanner } from "../../components/statusBanner";
import { Ago } from "../../components/time";
import { UsageBar } from "../../components/usageBar";
import { consistencyWords, hasCycles } from "../../labels/cycles";
import { aspectsOf, healthOf, logBudget, slotShare, warnShare } from "../../labels/health";
import { bytes, count, ofBytes, some } from "../../labels/numbers";
import { copiedWords, copyWords } from "../../labels/tables";
import { verifiedShareWords } from "../../labels/verifications";
import { later } from "../../later";
import { FreshnessGoalSection } from "../freshnessGoal";
import { NothingHerePage } from "../nothingHere";
import { Tables } from "../subscriptionTables";
import { BatchesPage } from "./batches";
import { SubscriptionEventsPage } from "./events";
import { SubscriptionFrame } from "./frame";
import { NodesSection } from "./nodes";
import { Pipeline } from "./pipeline";

// What a first visit does not show is loaded when it is visited.
const SettingsPage = later(async () => (await import("./settings")).SettingsPage);
const VerificationsPage = later(async () => (await import("./verifications")).VerificationsPage);
const LagCauses = later(async () => (await import("./lagCauses")).default);

/** The contents of further pages. */
const LATER = {
  charts: later(async () => (await import("./charts")).default),
  snapshots: later(async () => (await import("./snapshots/page")).default),
  cycles: later(async () => (await import("./cycles")).default),
  "read-points": later(async () => (await import("./readPoints")).default),
};

/** A subscription's pages; `part`: which one, empty for the first. */
export function SubscriptionPage({ name, part = "" }: { name: string; part?: string }) {
  switch (part) {
    case "charts":
    case "cycles":
    case "snapshots":
    case "read-points":
      return <Later name={name} part={part} />;
    case "batches":
      return <BatchesPage name={name} />;
    case "events":
      return <SubscriptionEventsPage name={name} />;
    case "verifications":
      return <VerificationsPage name={name} />;
    case "settings":
      return <SettingsPage name={name} />;
    case "":
      return <Overview name={name} />;
    default:
      return <NothingHerePage />;
  }
}

function Later({ name, part }: { name: string; part: keyof typeof LATER }) {
  const Content = LATER[part];
  return (
    <SubscriptionFrame name={name} part={part}>
      {(subscription) => (
        <Suspense fallback={<p className="soft">Loading …</p>}>
          <Content subscription={subscription} />
        </Suspense>
      )}
    </SubscriptionFrame>
  );
}

/** One pipeline: how it is and why, its stages, how far it is, its tables, and what happened. */
function Overview({ name }: { name: string }) {
  const events = useQuery(eventsQuery({ subscription: name }));
  return (
    <SubscriptionFrame name={name} part={null}>
      {(found) => (
        <>
          <Judged subscription={found} />
          <Section title="Stages" aside="The last minute">
            <Pipeline subscription={found} />
            <CrashGuard place={name}>
              <Suspense fallback={<p className="soft">Loading …</p>}>
                <LagCauses subscription={name} />
              </Suspense>
            </CrashGuard>
          </Section>
          <Section title="Progress">
            <Progress subscription={found} />
          </Section>
          <NodesSection subscription={found} />
          <FreshnessGoalSection subscription={name} table={null} />
          <Section title="Tables" aside={<Link href={addTableAddress(name)}>Add a table</Link>}>
            <Tables subscription={found} />
          </Section>
          <Section title="Events" aside={<Link href={subscriptionPart(name, "events")}>All of them</Link>}>
            <QueryBoundary query={events}>{(items) => <EventList events={items} here="subscription" />}</QueryBoundary>
          </Section>
        </>
      )}
    </SubscriptionFrame>
  );
}

/** Its health in one word, and what that was judged by. */
function Judged({ subscription }: { subscription: Subscription }) {
  const health = healthOf(subscription);
  const aspects = aspectsOf(subscription);
  return (
    <StatusBanner
      tone={health.tone}
      word={health.word}
      why={health.why}
      remedy={health.remedy}
      actions={health.actions}
      here="subscription"
      since={
        subscription.state_since != null && (
          <>
            {subscription.state} since <Ago at={subscription.state_since} />
          </>
        )
      }
    >
      <ul className="aspects" aria-label="What this was judged by">
        {aspects.map((aspect) => (
          <li key={aspect.name}>
            <StatusBadge tone={aspect.tone}>{aspect.name}</StatusBadge>
            <p className="soft">{aspect.says === health.why ? health.word : aspect.says}</p>
          </li>
        ))}
      </ul>
    </StatusBanner>
  );
}

function Progress({ subscription }: { subscription: Subscription }) {
  const { positions, lag, source, target, copying } = subscription;
  const share = slotShare(subscription);
  const verified = verifiedShareWords(subscription);
  return (
    <Facts>
      {copying != null && (
        <Fact name="Copies" note={`${count(copying.tables_copied)} of ${some(copying.tables, "table")} done`}>
          {copyWords(copying) ?? "progress not known yet"}
          <small>{copiedWords(copying)}</small>
        </Fact>
      )}
      <Fact name="Way">
        <Link href={CONNECTIONS}>{`${source} → ${target}`}</Link>
      </Fact>
      <Fact name="Behind the source">
        <LagCell lag={lag} />
      </Fact>
      <Fact
        name="Log retained there"
        note={
          share === null ? undefined : (
            <>
              <UsageBar share={share} warnAt={warnShare(subscription)} /> {ofBytes(logBudget(subscription))}
            </>
          )
        }
      >
        {bytes(subscription.retained_bytes)}
      </Fact>
      <Fact name="End of the source's log">
        <Position at={positions.source} />
      </Fact>
      <Fact name="Read up to">
        <Position at={positions.captured} />
      </Fact>
      <Fact name="Durable on the target up to">
        <Position at={positions.applied} />
      </Fact>
      <Fact name="Reported">
        <Ago at={positions.as_of} />
      </Fact>
      <Fact name="Readers see" note={hasCycles(subscription) && <Link href={subscriptionPart(subscription.name, "cycles")}>Cycles</Link>}>
        {consistencyWords(subscription.consistency)}
      </Fact>
      {verified !== null && (
        <Fact name="Verified" note={<Link href={subscriptionPart(subscription.name, "verifications")}>{verified.note}</Link>}>
          {verified.words}
        </Fact>
      )}
      <Fact name="Slot">
        <code>{subscription.slot}</code>
      </Fact>
    </Facts>
  );
}

const Position = ({ at }: { at: string | null | undefined }) => (at == null ? <>–</> : <code>{at}</code>);
