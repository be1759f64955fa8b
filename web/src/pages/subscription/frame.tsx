import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { subscriptionActions } from "../../actions";
import { FLEET, freshnessAddress, subscriptionAddress, subscriptionPart, ticketsAddress } from "../../addresses";
import type { Subscription } from "../../api/client";
import { subscriptionQuery } from "../../api/queries";
import { ActionButtons } from "../../components/actions";
import { Page } from "../../components/page";
import { QueryBoundary } from "../../components/queryBoundary";
import { hasCycles } from "../../labels/cycles";

/** The pages of a subscription; each has an address of its own. */
const PARTS = [
  { part: null, label: "Overview" },
  { part: "charts", label: "Charts" },
  { part: "batches", label: "Batches" },
  { part: "cycles", label: "Cycles" },
  { part: "events", label: "Events" },
  { part: "verifications", label: "Verifications" },
  { part: "snapshots", label: "Snapshots" },
  { part: "read-points", label: "Read points" },
  { part: "settings", label: "Settings" },
] as const;

export type Part = (typeof PARTS)[number]["part"];

interface FrameProps {
  name: string;
  part: Part;
  children: (subscription: Subscription) => ReactNode;
}

/** What all pages of a subscription have: its name, what can be done, and the ways between them. */
export function SubscriptionFrame({ name, part, children }: FrameProps) {
  const subscription = useQuery(subscriptionQuery(name));
  const label = PARTS.find((one) => one.part === part)?.label ?? "";
  return (
    <Page
      title={part === null ? name : `${name}: ${label.toLowerCase()}`}
      above={<Link href={FLEET}>Fleet</Link>}
      actions={subscription.data !== undefined && <ActionButtons actions={subscriptionActions(subscription.data)} />}
    >
      <nav className="tabs" aria-label={`Pages of ${name}`}>
        {PARTS.filter(({ part: one }) => one !== "cycles" || (subscription.data !== undefined && hasCycles(subscription.data))).map(
          (one) => (
            <Link
              key={one.label}
              href={one.part === null ? subscriptionAddress(name) : subscriptionPart(name, one.part)}
              aria-current={one.part === part ? "page" : undefined}
            >
              {one.label}
            </Link>
          ),
        )}
        <span className="further">
          <Link href={freshnessAddress(name)} aria-label={`Freshness of ${name}`}>
            Freshness
          </Link>
          <Link href={ticketsAddress(name)} aria-label={`Tickets of ${name}`}>
            Tickets
          </Link>
        </span>
      </nav>
      <QueryBoundary query={subscription}>{children}</QueryBoundary>
    </Page>
  );
}
