import type { components } from "./schema";

type Finding = components["schemas"]["FindingView"];
export type RemedyAction = components["schemas"]["RemedyAction"];

interface Parts {
  status: number;
  code: string;
  title: string;
  detail: string;
  remedy: string;
  traceId?: string;
  findings?: Finding[];
  actions?: RemedyAction[];
  body?: Record<string, unknown>;
}

/** Why a request was not done, in words for people: what happened, and what can be done about it. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly remedy: string;
  readonly traceId: string | undefined;
  readonly findings: Finding[];
  /** The operations that the remedy names. */
  readonly actions: RemedyAction[];
  /** The whole body of the answer: some codes have members of their own. */
  readonly body: Record<string, unknown>;

  constructor(parts: Parts) {
    super(`${parts.title}: ${parts.detail}`);
    this.status = parts.status;
    this.code = parts.code;
    this.title = parts.title;
    this.detail = parts.detail;
    this.remedy = parts.remedy;
    this.traceId = parts.traceId;
    this.findings = parts.findings ?? [];
    this.actions = parts.actions ?? [];
    this.body = parts.body ?? {};
  }

  /** From an answer's body, as far as it is `application/problem+json`: a proxy may have answered in the server's place. */
  static of(response: Response, body: unknown): Problem {
    const given: Record<string, unknown> = typeof body === "object" && body !== null ? { ...body } : {};
    const text = (name: string, otherwise: string): string => {
      const value = given[name];
      return typeof value === "string" ? value : otherwise;
    };
    return new Problem({
      status: response.status,
      code: text("code", `http_${response.status}`),
      title: text("title", "The server refused this"),
      detail: text("detail", `It answered with status ${response.status}.`),
      remedy: text("remedy", ""),
      traceId: text("trace_id", "") || undefined,
      findings: Array.isArray(given.findings) ? (given.findings as Finding[]) : [],
      actions: Array.isArray(given.actions) ? (given.actions as RemedyAction[]) : [],
      body: given,
    });
  }

  /** What is wrong with the member of the request at this JSON pointer, or with a part of it; null if nothing is. */
  at(pointer: string): string | null {
    const errors = Array.isArray(this.body.errors) ? (this.body.errors as { pointer?: unknown; detail?: unknown }[]) : [];
    const found = errors.find(({ pointer: place }) => place === pointer || (typeof place === "string" && place.startsWith(`${pointer}/`)));
    return typeof found?.detail === "string" ? found.detail : null;
  }

  static unreachable(): Problem {
    return new Problem({
      status: 0,
      code: "unreachable",
      title: "The server does not answer",
      detail: "The request did not get through.",
      remedy: "It is tried again by itself. If it stays so, look whether the server runs.",
    });
  }

  /** Whatever was thrown, as a Problem. */
  static from(error: unknown): Problem {
    if (error instanceof Problem) return error;
    return new Problem({
      status: 0,
      code: "console_error",
      title: "The console could not do this",
      detail: error instanceof Error ? error.message : "Something unexpected happened.",
      remedy: "Load the page again.",
    });
  }
}
