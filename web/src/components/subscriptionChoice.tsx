import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { FLEET, subscriptionAddress } from "../addresses";
import type { Subscription } from "../api/client";
import { subscriptionsQuery } from "../api/queries";
import { useFilters } from "../filters";
import { healthOf } from "../labels/health";
import { QueryBoundary } from "./queryBoundary";
import { StatusBadge } from "./statusBadge";

/** Which subscription a page is about: the one that the address names, or else the first. */
export function SubscriptionChoice({ children }: { children: (subscription: Subscription) => ReactNode }) {
  const subscriptions = useQuery(subscriptionsQuery());
  return <QueryBoundary query={subscriptions}>{(items) => <Choice items={items}>{children}</Choice>}</QueryBoundary>;
}

interface ChoiceProps {
  items: Subscription[];
  children: (subscription: Subscription) => ReactNode;
}

function Choice({ items, children }: ChoiceProps) {
  const filters = useFilters();
  const sorted = [...items].sort((a, b) => a.name.localeCompare(b.name));
  const named = filters.get("subscription");
  const chosen = named === "" ? sorted[0] : sorted.find(({ name }) => name === named);
  if (sorted.length === 0) {
    return (
      <p className="prose">
        There is no subscription yet. <Link href={FLEET}>The fleet page</Link> explains how to create one.
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
            onChange={(event) => filters.set({ subscription: event.target.value, since: null, ticket: null, read_point: null })}
          >
            {chosen === undefined && <option value="">choose one</option>}
            {sorted.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {chosen !== undefined && <Health subscription={chosen} />}
      </div>
      {chosen === undefined ? <p className="prose">There is no subscription named {named}.</p> : children(chosen)}
    </>
  );
}

function Health({ subscription }: { subscription: Subscription }) {
  const { tone, word, why } = healthOf(subscription);
  return (
    <p>
      <Link href={subscriptionAddress(subscription.name)}>
        <StatusBadge tone={tone}>{word}</StatusBadge>
      </Link>{" "}
      <span className="soft">{why}</span>
    </p>
  );
}
