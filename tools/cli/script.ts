/** `herobus script …`: Rhai without a bus: `check` (script-check.ts) and `run` (script-run.ts). */
import type { Command } from 'commander';
import { withExample } from './output.ts';
import { registerScriptCheck } from './script-check.ts';
import { registerScriptRun } from './script-run.ts';

export function registerScript(program: Command): void {
  const script = program
    .command('script')
    .summary('check or run a script without a bus')
    .description('Rhai scripts without a bus: checked, or run on this machine.');
  registerScriptCheck(script);
  registerScriptRun(script);
  withExample(script, 'herobus script check web.rhai');
}
