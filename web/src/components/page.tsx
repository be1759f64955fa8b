import { type ReactNode, useEffect, useRef } from "react";

interface PageProps {
  title: string;
  /** Where the page belongs, before its title. */
  above?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

let first = true;

/** A page with its heading, which takes the focus after a change of pages. */
export function Page({ title, above, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  useEffect(() => {
    if (!first) heading.current?.focus();
    first = false;
  }, []);
  return (
    <>
      <div className="page-head">
        <div>
          {above !== undefined && <p className="above">{above}</p>}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
        </div>
        {actions !== undefined && <div className="actions">{actions}</div>}
      </div>
      {children}
    </>
  );
}

/** A part of a page under a heading of its own. */
export function Section({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  const id = `section-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section aria-labelledby={id}>
      <div className="section-head">
        <h2 id={id}>{title}</h2>
        {aside !== undefined && <div className="soft">{aside}</div>}
      </div>
      {children}
    </section>
  );
}
