import { render } from 'preact';
import { App } from './app';
import './style/base.css';
import './style/parts.css';
import './style/pages.css';

const place = document.getElementById('app');
if (place) render(<App />, place);
