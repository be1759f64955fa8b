import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { CONNECTIONS, FLEET } from "../addresses";
import { subscriptionActions } from "../actions";
import type { Subscription } from "../api/client";
import { eventsQuery, subscriptionQuery } from "../api/queries";
import { atServer } from "../clock";
import { ActionButtons } from "../parts/actions";
import { EventList } from "../parts/events";
import { Facts } from "../parts/facts";
import { Lead } from "../parts/lead";
import { Loaded } from "../parts/loaded";
import { Page, Section } from "../parts/page";
import { Share } from "../parts/share";
import { Ago } from "../parts/time";
import { healthOf, slotShare, warnShare } from "../words/health";
import { bytes, seconds } from "../words/numbers";
import { Tables } from "./subscriptionTables";

/** One pipeline: how it is and why, how far it is, its tables, and what happened. */
export function SubscriptionPage({ name }: { name: string }) {
  const subscription = useQuery(subscriptionQuery(name));
  const events = useQuery(eventsQuery({ subscription: name }));
  return (
    <Page
      title={name}
      above={<Link href={FLEET}>Fleet</Link>}
      actions={subscription.data !== undefined && <ActionButtons actions={subscriptionActions(subscription.data)} />}
    >
      <Loaded query={subscription}>
        {(found) => (
          <>
            <HealthLead subscription={found} readMs={atServer(subscription.dataUpdatedAt)} />
            <Section title="Progress">
              <Progress subscription={found} />
            </Section>
            <Section title="Tables">
              <Tables subscription={found} />
            </Section>
            <Section title="Events" aside="The newest 20">
              <Loaded query={events}>{(items) => <EventList events={items} />}</Loaded>
            </Section>
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** `readMs`: when it was read, by the server's clock. */
function HealthLead({ subscription, readMs }: { subscription: Subscription; readMs: number }) {
  const health = healthOf(subscription, readMs);
  return (
    <Lead
      tone={health.tone}
      word={health.word}
      why={health.why}
      remedy={health.remedy}
      since={
        subscription.state_since != null && (
          <>
            {subscription.state} since <Ago at={subscription.state_since} />
          </>
        )
      }
    />
  );
}

function Progress({ subscription }: { subscription: Subscription }) {
  const { positions, lag, source, target } = subscription;
  const share = slotShare(subscription);
  return (
    <Facts
      facts={[
        ["Way", <Link href={CONNECTIONS}>{`${source} → ${target}`}</Link>],
        ["Behind the source", seconds(lag.seconds), lag.bytes == null ? undefined : bytes(lag.bytes)],
        [
          "Log held back there",
          bytes(subscription.retained_bytes),
          share === null ? undefined : (
            <>
              <Share share={share} warnAt={warnShare(subscription)} /> of{" "}
              {bytes(subscription.capture.slot_budget_bytes)}
            </>
          ),
        ],
        ["End of the source's log", <Position at={positions.source} />],
        ["Read up to", <Position at={positions.captured} />],
        ["Durable on the target up to", <Position at={positions.applied} />],
        ["Reported", <Ago at={positions.as_of} />],
        ["Slot", <code>{subscription.slot}</code>],
      ]}
    />
  );
}

const Position = ({ at }: { at: string | null | undefined }) => (at == null ? <>–</> : <code>{at}</code>);
