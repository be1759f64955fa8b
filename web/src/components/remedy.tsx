import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { RemedyAction } from "../api/problem";
import { callerQuery } from "../api/queries";
import { type Place, plainRemedy } from "../labels/remedies";
import { type Offer, offerOf } from "../remedyActions";
import { type Role, usePermission } from "../usePermission";
import { asked } from "./asked";

interface RemedyProps {
  text: string;
  /** The operations that it names. */
  actions?: readonly RemedyAction[] | undefined;
  className?: string;
  /** The page that shows it. */
  here?: Place | undefined;
}

/** What can be done, by buttons where there are some; the calls that they make are there for who does it by the API. */
export function Remedy({ text, actions = [], className, here }: RemedyProps) {
  const offers = actions.map((action) => ({ name: action.action, offer: offerOf(action, here) }));
  const buttons = offers.filter(({ offer }) => offer?.by === "button" && !offer.onPage).map(({ name }) => name);
  const { words, calls } = plainRemedy(text, here, buttons);
  return (
    <>
      <p className={className}>{words}</p>
      {offers.some(({ offer }) => offer !== null) && (
        <ul className="offers">{offers.map(({ name, offer }) => offer !== null && <OfferItem key={name} offer={offer} />)}</ul>
      )}
      {calls.length > 0 && (
        <details className="calls">
          <summary>By the API</summary>
          {calls.map((call) => (
            <code key={call}>{call}</code>
          ))}
        </details>
      )}
    </>
  );
}

function OfferItem({ offer }: { offer: Offer }) {
  switch (offer.by) {
    case "button": {
      const { action } = offer;
      const label = `${action.verb} ${action.name}`;
      return (
        <Permitted role={action.role ?? "operator"} what={label} onPage={offer.onPage}>
          <button type="button" className={action.serious === true ? "quiet serious" : "quiet"} onClick={() => asked.set(action)}>
            {label}
          </button>
        </Permitted>
      );
    }
    case "link":
      return (
        <Permitted role={offer.role} what={offer.label}>
          <Link href={offer.address}>{offer.label}</Link>
        </Permitted>
      );
    default:
      return (
        <li>
          <code>{offer.command}</code>
        </li>
      );
  }
}

interface PermittedProps {
  role: Role | null;
  what: string;
  /** The page has it already. */
  onPage?: boolean;
  children: ReactNode;
}

/** What the reader may not do is named, with the role that may. */
function Permitted({ role, what, onPage = false, children }: PermittedProps) {
  const may = usePermission();
  const caller = useQuery(callerQuery());
  if (role === null || may(role)) return onPage ? null : <li>{children}</li>;
  return (
    <li className="soft">
      “{what}” needs the role {role}; you are signed in as {caller.data?.role ?? "another"}.
    </li>
  );
}
