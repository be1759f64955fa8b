import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { Subscription } from "../../api/client";
import { freshnessQuery } from "../../api/freshness";
import { Fact, Facts } from "../../components/facts";
import { LagCell } from "../../components/lagCell";
import { Page, Section } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { SubscriptionChoice } from "../../components/subscriptionChoice";
import { Ago } from "../../components/time";
import { useFilters } from "../../filters";
import { count } from "../../labels/numbers";
import { QuerySection } from "./query";
import type { QueryWish } from "./queryForm";
import { WaitSection } from "./wait";

/** How fresh a target is: its positions, waiting until it is fresh enough, and reading from it. */
export function FreshnessPage() {
  return (
    <Page title="Freshness">
      <SubscriptionChoice>{(subscription) => <Fresh key={subscription.name} subscription={subscription} />}</SubscriptionChoice>
    </Page>
  );
}

function Fresh({ subscription }: { subscription: Subscription }) {
  const named = useFilters().get("read_point");
  const [wish, setWish] = useState<QueryWish>({ mode: named === "" ? "latest" : "read_point", position: "", readPoint: named });
  const sql = useRef<HTMLTextAreaElement>(null);
  const readAt = (position: string): void => {
    setWish({ ...wish, mode: "position", position });
    sql.current?.focus();
  };
  return (
    <>
      <Section title="Now">
        <Positions name={subscription.name} />
      </Section>
      <Section title="Wait" aside="Until changes are visible on the target">
        <WaitSection subscription={subscription.name} onPosition={readAt} />
      </Section>
      <Section title="Query" aside="One SELECT on the target">
        <QuerySection subscription={subscription} wish={wish} onWish={setWish} sqlBox={sql} />
      </Section>
    </>
  );
}

function Positions({ name }: { name: string }) {
  const freshness = useQuery(freshnessQuery(name));
  return (
    <QueryBoundary query={freshness}>
      {({ positions, lag, waits, at }) => (
        <Facts>
          <Fact name="Behind the source">
            <LagCell lag={lag} />
          </Fact>
          <Fact name="End of the source's log">
            <Position at={positions.source} />
          </Fact>
          <Fact name="Read up to">
            <Position at={positions.captured} />
          </Fact>
          <Fact name={positions.confirmed ? "Visible on the target up to" : "Last known on the target"}>
            <Position at={positions.applied} />
          </Fact>
          <Fact name="Waiting now">{count(waits)}</Fact>
          <Fact name="Reported">
            <Ago at={at} />
          </Fact>
        </Facts>
      )}
    </QueryBoundary>
  );
}

const Position = ({ at }: { at: string | null }) => (at === null ? <>–</> : <code>{at}</code>);
