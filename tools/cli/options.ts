/** The global options, for commands that run without a session: which home, and whether JSON is wanted. */
import type { Command } from 'commander';
import { homeDir } from './home.ts';
import { globals } from './output.ts';

export const homeOf = (command: Command): string => homeDir(globals(command).home);

export const isJson = (command: Command): boolean => globals(command).json ?? false;
