import { Component, type ReactNode } from "react";
import { ProblemNote } from "./problemNote";

interface Props {
  /** A new value gives the content another chance. */
  place: string;
  children: ReactNode;
}

/** Keeps a defect in one page from taking the header and the way out with it. */
export class CrashGuard extends Component<Props, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error: error ?? new Error("Something unexpected happened.") };
  }

  override componentDidUpdate(before: Props): void {
    if (before.place !== this.props.place && this.state.error !== null) this.setState({ error: null });
  }

  override render(): ReactNode {
    return this.state.error === null ? this.props.children : <ProblemNote error={this.state.error} />;
  }
}
