import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { FLEET, subscriptionAddress } from "../addresses";
import type { Subscription } from "../api/client";
import { subscriptionsQuery } from "../api/queries";
import { atServer } from "../clock";
import { useEngineAway } from "../engine";
import { useFilters } from "../filters";
import { healthOf } from "../words/health";
import { Loaded } from "./loaded";
import { Mark } from "./mark";

/** Which subscription a page is about: the one that the address names, or else the first. */
export function SubscriptionChoice({ children }: { children: (subscription: Subscription) => ReactNode }) {
  const subscriptions = useQuery(subscriptionsQuery());
  return (
    <Loaded query={subscriptions}>
      {(items) => <Choice items={items} readMs={atServer(subscriptions.dataUpdatedAt)} children={children} />}
    </Loaded>
  );
}

interface ChoiceProps {
  items: Subscription[];
  /** When they were read, by the server's clock. */
  readMs: number;
  children: (subscription: Subscription) => ReactNode;
}

function Choice({ items, readMs, children }: ChoiceProps) {
  const filters = useFilters();
  const sorted = [...items].sort((a, b) => a.name.localeCompare(b.name));
  const named = filters.get("subscription");
  const chosen = named === "" ? sorted[0] : sorted.find(({ name }) => name === named);
  if (sorted.length === 0) {
    return (
      <p className="prose">
        There is no subscription yet. <Link href={FLEET}>The fleet</Link> tells how to make one.
      </p>
    );
  }
  return (
    <>
      <div className="subscription-choice">
        <label>
          <span>Subscription</span>
          <select
            value={chosen?.name ?? ""}
            onChange={(event) => filters.set({ subscription: event.target.value, since: null, ticket: null })}
          >
            {chosen === undefined && <option value="">choose one</option>}
            {sorted.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {chosen !== undefined && <Health subscription={chosen} readMs={readMs} />}
      </div>
      {chosen === undefined ? <p className="prose">There is no subscription named {named}.</p> : children(chosen)}
    </>
  );
}

function Health({ subscription, readMs }: { subscription: Subscription; readMs: number }) {
  const { tone, word, why } = healthOf(subscription, { readMs, engineAway: useEngineAway() });
  return (
    <p>
      <Link href={subscriptionAddress(subscription.name)}>
        <Mark tone={tone}>{word}</Mark>
      </Link>{" "}
      <span className="soft">{why}</span>
    </p>
  );
}
