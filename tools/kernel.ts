/** `node tools/kernel.ts`: downloads and unpacks Debian's kernel into the cache of this tree, and names it. */
import { resolve } from 'node:path';
import { ensureKernel, KERNEL_FOLDER } from '../efi/kernel.ts';

const { image } = await ensureKernel(resolve(import.meta.dirname, '..', KERNEL_FOLDER));
console.log(image);
